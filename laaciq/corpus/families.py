"""Language families by ISO 639-3 code, for statistics over languages that are related.

Top-level families of Glottolog (Hammarström, Forkel, Haspelmath & Bank, https://glottolog.org, CC BY 4.0); an isolate is a family of its own.
The table has the built-in languages and the most common others. A language that is not in it has no known family.
"""

from __future__ import annotations

_CODES = {
    "Afro-Asiatic": "amh ara arz hau heb mlt orm som tir",
    "Atlantic-Congo": "ibo kin lin lug nya sna sot swa tsn wol xho yor zul",
    "Austroasiatic": "khm vie",
    "Austronesian": "ceb fil ind jav mlg mri msa sun zsm",
    "Basque": "eus",
    "Dravidian": "kan mal tam tel",
    "Indo-European": (
        "afr asm bel ben bos bul cat ces cym dan deu ell eng fas fra gle glg guj hin hrv hye isl ita lav lit mar mkd nep nld nob nor ori "
        "pan pol por pus ron rus sin slk slv snd spa sqi srp swe tgk ukr urd"
    ),
    "Japonic": "jpn",
    "Kartvelian": "kat",
    "Koreanic": "kor",
    "Mongolic-Khitan": "mon khk",
    "Quechuan": "que quy",
    "Sino-Tibetan": "bod mya yue zho",
    "Tai-Kadai": "lao tha",
    "Tupian": "grn",
    "Turkic": "aze azj kaz kir tat tuk tur uig uzb uzn",
    "Uralic": "est fin hun",
}
_BY_CODE = {code: family for family, codes in _CODES.items() for code in codes.split()}


def family(code: str) -> str | None:
    """The family of a language; None if the table does not have it."""
    return _BY_CODE.get(code)
