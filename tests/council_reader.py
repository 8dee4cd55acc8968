"""An independent reader for the council of an overnight run and for the extension of thin packets, written only
from the documented formats.

Usage: council_reader.py OUTPUT-DIR. Checks that every report has the required format, that the synthesis omits no
councillor, that the digests in the ledger match the files, and that the search for more evidence ended as required.
Shares no code or schema with runner.
"""
import hashlib, json, os, sys

LONG_HAUL = "enabled active trigger_reason exit_reason probe_count zero_delta_probe_streak".split()
REPORT = "runner headline recommended_kind recommended_first_action risks opportunities confidence wildcard_idea".split()
KINDS = "research implement validate repair promote document".split()


class Bad(Exception):
    pass


def need(ok, why):
    if not ok:
        raise Bad(why)


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def fields(value, required, optional, where):
    need(isinstance(value, dict), f"{where} is not an object")
    need(not set(required) - set(value), f"{where} has no {sorted(set(required) - set(value))}")
    extra = set(value) - set(required) - set(optional)
    need(not extra, f"{where} has unknown fields: {sorted(extra)}")


def council(out, summary):
    """Checks the format of each report, that the synthesis omits no councillor, and the digests in the ledger."""
    folder = os.path.join(out, "council")
    if not os.path.isdir(folder):
        return 0
    shown = {it["id"] for it in load(os.path.join(folder, "packet.json"))["candidates"]}
    ledger = load(os.path.join(folder, "ledger.json"))
    own = {}
    for name in sorted(set(os.listdir(folder)) - {"packet.json", "synthesis.json", "ledger.json", "wildcard.json"}):
        it = load(os.path.join(folder, name))
        fields(it, REPORT, ["backs"], name)
        need(it["recommended_kind"] in KINDS and it["confidence"] in ("low", "medium", "high"), f"{name}: {it}")
        need(set(it.get("backs", [])) <= shown, f"{name} backs a packet that it was not shown")
        need(all("\n" not in text and len(text) <= 400 for text in [it["headline"], *it["risks"], *it["opportunities"]]), f"{name}: a text is too long")
        own[it["runner"]] = it
    for one in [ledger["packet"], *(it["said"] for it in ledger["passes"] if "said" in it)]:
        with open(os.path.join(out, one["artifact"]), "rb") as file:
            need(hashlib.sha256(file.read()).hexdigest() in one["sha256"], f"{one['artifact']} differs from the recorded digest")
    answered = {it["runner"] for it in ledger["passes"] if it["status"] == "answered" and it["lane"] == "council"}
    need(answered == set(own), f"{answered} answered, but the reports are from {set(own)}")
    need(all(it.get("why") for it in ledger["passes"] if it["status"] != "answered"), "a pass without an answer has no reason")
    if own:
        it = load(os.path.join(folder, "synthesis.json"))
        need(it["voices"] == sorted(own), f"the synthesis names {it['voices']}, not {sorted(own)}")
        told = {voice["runner"]: (position["recommended_kind"], voice) for position in it["positions"] for voice in position["voices"]}
        for name, report in own.items():
            kind, voice = told[name]
            need(kind == report["recommended_kind"] and voice["headline"] == report["headline"], f"{name} differs between its report and the synthesis")
        kinds = {report["recommended_kind"] for report in own.values()}
        need(len(kinds) == 1 or all(name in it["tension"] for name in own), "the tension of a disagreement does not name every councillor")
        need(all(one["wildcard"] is True for one in it["wildcards"]), "a wildcard is not marked")
    packets = summary.get("morning_packets", [])
    need([it["id"] for it in ledger["packets"]] == [it["id"] for it in packets], "the ledger and the summary list different packets")
    need(not packets or packets[0].get("source") != "council-wildcard", "the first packet is a wildcard")
    for traced, it in zip(ledger["packets"], packets):
        need(traced["evidence"] == it["evidence"], f"{it['id']}: the ledger and the packet have different evidence")
        for voice in traced["voices"]:
            words = load(os.path.join(out, voice["artifact"]))
            need(words["runner"] == voice["runner"], f"{it['id']}: {voice}")
            if it.get("source") not in ("council", "council-wildcard"):
                need(it["id"] in words["backs"], f"{it['id']}: {voice['runner']} does not back it")
    return len(own)


def long_haul(out, summary):
    it = summary["long_haul"]
    fields(it, LONG_HAUL, [], "long_haul")
    path = os.path.join(out, "packet-corroboration.json")
    need(os.path.isfile(path) == it["active"], "packet-corroboration.json must exist if and only if the long haul was active")
    if not it["active"]:
        need(it["probe_count"] == 0 and it["exit_reason"], "an inactive long haul has probes or lacks an exit reason")
        return
    probes = load(path)["probes"]
    need(len(probes) == it["probe_count"] and it["trigger_reason"] and it["exit_reason"], f"long_haul: {it}")
    streak = 0
    for probe in probes:
        need(streak < 2, "the search continued after two probes without a result")
        streak = 0 if probe["added"] else streak + 1
    need(streak == it["zero_delta_probe_streak"], f"a streak of {streak}: {it}")


if __name__ == "__main__":
    try:
        summary = load(os.path.join(sys.argv[1], "summary.json"))
        heard = council(sys.argv[1], summary)
        long_haul(sys.argv[1], summary)
        print(f"council reader: {heard} reports, {summary['long_haul']['probe_count']} probes conform to their formats")
    except Bad as bad:
        sys.exit(f"the artifacts do not conform to their formats: {bad}")
