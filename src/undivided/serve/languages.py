"""Language codes: how clients write them, and their English names."""

from __future__ import annotations

NAMES = dict(
    line.split(" ", 1)
    for line in """\
af Afrikaans|am Amharic|an Aragonese|ar Arabic|as Assamese|az Azerbaijani|be Belarusian|bg Bulgarian|bn Bengali|
br Breton|bs Bosnian|ca Catalan|cs Czech|cy Welsh|da Danish|de German|dz Dzongkha|el Greek|en English|
eo Esperanto|es Spanish|et Estonian|eu Basque|fa Persian|fi Finnish|fo Faroese|fr French|ga Irish|gl Galician|
gu Gujarati|ha Hausa|he Hebrew|hi Hindi|hr Croatian|ht Haitian Creole|hu Hungarian|hy Armenian|id Indonesian|
ig Igbo|is Icelandic|it Italian|ja Japanese|jv Javanese|ka Georgian|kk Kazakh|km Khmer|kn Kannada|ko Korean|
ku Kurdish|ky Kyrgyz|la Latin|lb Luxembourgish|lo Lao|lt Lithuanian|lv Latvian|mg Malagasy|mk Macedonian|
ml Malayalam|mn Mongolian|mr Marathi|ms Malay|mt Maltese|my Burmese|nb Norwegian Bokmål|ne Nepali|nl Dutch|
nn Norwegian Nynorsk|no Norwegian|oc Occitan|or Odia|pa Punjabi|pb Portuguese (Brazil)|pl Polish|ps Pashto|
pt Portuguese|qu Quechua|ro Romanian|ru Russian|rw Kinyarwanda|se Northern Sami|si Sinhala|sk Slovak|
sl Slovenian|so Somali|sq Albanian|sr Serbian|sv Swedish|sw Swahili|ta Tamil|te Telugu|tg Tajik|th Thai|
tk Turkmen|tl Tagalog|tr Turkish|ug Uyghur|uk Ukrainian|ur Urdu|uz Uzbek|vi Vietnamese|vo Volapük|wa Walloon|
xh Xhosa|yi Yiddish|yo Yoruba|zh Chinese|zt Chinese (traditional)|zu Zulu""".replace("\n", "").split("|")
)
"""English names."""

ALIASES = {"zh-hans": "zh", "zh-cn": "zh", "zh-hant": "zt", "zh-tw": "zt", "pt-br": "pb"}
"""What LibreTranslate calls by codes of its own."""


def normalize_code(code: str) -> str:
    """`EN_us` → `en-us`."""
    return code.strip().lower().replace("_", "-")


def find_code(code: str, known: dict[str, str] | set[str] | list[str]) -> str | None:
    """The one of the known codes that a client means: the very one, one of another name, or the language without its region."""
    wanted = normalize_code(code)
    by_name = {normalize_code(each): each for each in known}
    for name in (wanted, ALIASES.get(wanted, wanted), wanted.partition("-")[0]):
        if name in by_name:
            return by_name[name]
    return None


def language_name(code: str) -> str:
    """The English name of a language, or its code where we have none."""
    code = normalize_code(code)
    return NAMES.get(code) or NAMES.get(code.partition("-")[0]) or code


def libretranslate_code(code: str) -> str:
    """What LibreTranslate answers with."""
    return {"zh": "zh-Hans", "zt": "zh-Hant", "pb": "pt-BR"}.get(code, code)
