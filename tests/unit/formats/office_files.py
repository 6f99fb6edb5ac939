# ruff: noqa: E501  (documents are written as they are)
"""Small office files, made by hand."""

import io
import zipfile

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
DOCUMENT = (
    f'<?xml version="1.0" encoding="UTF-8"?>\n<w:document {W}><w:body>'
    '<w:p><w:pPr><w:pStyle w:val="Title"/></w:pPr><w:r><w:t>The big title</w:t></w:r></w:p>'
    '<w:p><w:r><w:t xml:space="preserve">A </w:t></w:r><w:proofErr/><w:r><w:rPr><w:b/></w:rPr><w:t>bold</w:t></w:r>'
    '<w:r><w:t xml:space="preserve"> word &amp; a </w:t></w:r><w:hyperlink r:id="rId1" xmlns:r="r"><w:r><w:rPr><w:u/></w:rPr><w:t>link</w:t></w:r>'
    "</w:hyperlink><w:r><w:tab/><w:t>end.</w:t></w:r></w:p>"
    '<w:p><w:r><w:fldChar w:fldCharType="begin"/></w:r><w:r><w:instrText>PAGE</w:instrText></w:r><w:r><w:fldChar w:fldCharType="end"/></w:r>'
    '<w:r><w:t xml:space="preserve"> of pages</w:t></w:r></w:p>'
    "<w:p><w:r><w:t>Outer</w:t><w:drawing><w:txbxContent><w:p><w:r><w:t>inner box</w:t></w:r></w:p></w:txbxContent></w:drawing></w:r></w:p>"
    "<w:p/><w:sectPr/></w:body></w:document>"
)
SLIDE = (
    '<p:sld xmlns:a="a" xmlns:p="p"><p:txBody><a:p><a:pPr/><a:r><a:rPr b="1"/><a:t>Slide</a:t></a:r><a:br/>'
    "<a:r><a:rPr/><a:t>two lines</a:t></a:r><a:endParaRPr/></a:p></p:txBody></p:sld>"
)
SHARED = '<sst xmlns="s"><si><t>Plain cell</t></si><si><r><rPr><b/></rPr><t>Rich</t></r><r><t xml:space="preserve"> cell</t></r></si><si><t>12</t></si></sst>'
CONTENT = (
    '<office:document-content xmlns:office="o" xmlns:text="t" xmlns:draw="d"><office:body><text:h text:outline-level="1">A heading</text:h>'
    '<text:p text:style-name="P1">Some <text:span text:style-name="B">bold</text:span> text<text:note><text:note-body><text:p>A footnote</text:p>'
    "</text:note-body></text:note> here.<text:line-break/></text:p><text:p/></office:body></office:document-content>"
)
XHTML = '<?xml version="1.0"?>\n<html xmlns="http://www.w3.org/1999/xhtml" lang="en"><body><h1>Chapter</h1><p>It <em>was</em> late.</p></body></html>'
NCX = "<ncx><navMap><navPoint><navLabel><text>Chapter</text></navLabel></navPoint></navMap></ncx>"


def pack(members: dict[str, str | bytes]) -> bytes:
    result = io.BytesIO()
    with zipfile.ZipFile(result, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            info = zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0))
            info.compress_type = zipfile.ZIP_STORED if name == "mimetype" else zipfile.ZIP_DEFLATED
            archive.writestr(info, content)
    return result.getvalue()


def unpack(data: bytes, member: str) -> str:
    return zipfile.ZipFile(io.BytesIO(data)).read(member).decode()


PICTURE = bytes(range(256)) * 4
OFFICE = {
    "docx": (pack({"[Content_Types].xml": "<Types/>", "word/document.xml": DOCUMENT, "word/media/a.png": PICTURE}), "word/document.xml",
             ["The big title", "A bold word & a linkend.", " of pages", "Outer", "inner box"]),
    "pptx": (pack({"ppt/slides/slide1.xml": SLIDE}), "ppt/slides/slide1.xml", ["Slidetwo lines"]),
    "xlsx": (pack({"xl/sharedStrings.xml": SHARED}), "xl/sharedStrings.xml", ["Plain cell", "Rich cell", "12"]),
    "odt": (pack({"mimetype": "application/vnd.oasis.opendocument.text", "content.xml": CONTENT}), "content.xml",
            ["A heading", "Some bold text here.", "A footnote"]),
    "odp": (pack({"mimetype": "application/vnd.oasis.opendocument.presentation", "content.xml": CONTENT}), "content.xml",
            ["A heading", "Some bold text here.", "A footnote"]),
    "epub": (pack({"mimetype": "application/epub+zip", "OEBPS/a.xhtml": XHTML, "OEBPS/toc.ncx": NCX}), "OEBPS/a.xhtml",
             ["Chapter", "It was late.", "Chapter"]),
}  # fmt: skip
