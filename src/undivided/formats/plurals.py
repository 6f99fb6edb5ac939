"""How many plural forms a language has, and which number takes which: what gettext's headers say."""

from __future__ import annotations

from typing import NamedTuple

from undivided.formats.languages import base_language


class PluralRule(NamedTuple):
    """The plural forms of a language."""

    forms: int
    choice: str
    """The number of the form for `n`, as an expression in C."""

    def header(self) -> str:
        """As the header of a PO file says it."""
        return f"nplurals={self.forms}; plural={self.choice};"


_FEW = "n%10>=2 && n%10<=4 && (n%100<10 || n%100>=20)"
_RULES = {
    "id ja km ko lo ms my th vi zh": PluralRule(1, "0"),
    "af az bg bn ca da de el en eo es et eu fi fo fy gl gu he hi hu it ka kk kn ku lb ml mn mr nb ne nl nn no pa pt sq sv sw ta "
    "te tk tr ug ur uz": PluralRule(2, "(n != 1)"),
    "fa fil fr hy ln mg oc tg tl wa": PluralRule(2, "(n > 1)"),
    "is": PluralRule(2, "(n%10!=1 || n%100==11)"),
    "be bs hr ru sr uk": PluralRule(3, f"(n%10==1 && n%100!=11 ? 0 : {_FEW} ? 1 : 2)"),
    "cs sk": PluralRule(3, "(n==1 ? 0 : n>=2 && n<=4 ? 1 : 2)"),
    "pl": PluralRule(3, f"(n==1 ? 0 : {_FEW} ? 1 : 2)"),
    "lt": PluralRule(3, "(n%10==1 && n%100!=11 ? 0 : n%10>=2 && (n%100<10 || n%100>=20) ? 1 : 2)"),
    "lv": PluralRule(3, "(n%10==1 && n%100!=11 ? 0 : n != 0 ? 1 : 2)"),
    "ro": PluralRule(3, "(n==1 ? 0 : n==0 || (n%100>0 && n%100<20) ? 1 : 2)"),
    "sl": PluralRule(4, "(n%100==1 ? 0 : n%100==2 ? 1 : n%100==3 || n%100==4 ? 2 : 3)"),
    "ga": PluralRule(5, "(n==1 ? 0 : n==2 ? 1 : n<7 ? 2 : n<11 ? 3 : 4)"),
    "ar": PluralRule(6, "(n==0 ? 0 : n==1 ? 1 : n==2 ? 2 : n%100>=3 && n%100<=10 ? 3 : n%100>=11 ? 4 : 5)"),
}
_BY_LANGUAGE = {language: rule for languages, rule in _RULES.items() for language in languages.split()}


def plural_rule(language: str) -> PluralRule | None:
    """The plural forms of a language, such as `de` or `pt_BR`; None where they are not known here."""
    if language.replace("_", "-").lower() == "pt-br":
        return PluralRule(2, "(n > 1)")
    return _BY_LANGUAGE.get(base_language(language))
