"""What the documents say of the code, compared with it."""

from pathlib import Path

from gateway.connections import PRESETS

ROOT = Path(__file__).resolve().parents[2]


def test_the_readmes_table_of_presets_is_the_rows() -> None:
    told: dict[str, dict[str, str]] = {"openai": {}, "anthropic": {}}
    table = (ROOT / "README.md").read_text("utf-8").partition("| preset | provider |")[2].partition("\n\n")[0]
    for line in table.splitlines()[2:]:
        names, _, openai, anthropic, _ = (cell.strip() for cell in line.strip("|").split("|"))
        for kind, address in (("openai", openai), ("anthropic", anthropic)):
            told[kind] |= {name.strip("` "): address.strip("`") for name in names.split("·") if address}
    assert told == {kind: {name: row.base_url or "your own" for name, row in rows.items()} for kind, rows in PRESETS.items()}
