"""Reads a folder of exported files with AIPerf's own models and prints what it found."""

import sys
from pathlib import Path

from aiperf.common.models import MetricRecordInfo
from aiperf.common.models.export_models import JsonExportData

folder = Path(sys.argv[1])
with open(folder / "profile_export.jsonl", encoding="utf-8") as lines:
    records = [MetricRecordInfo.model_validate_json(line) for line in lines]
summary = JsonExportData.model_validate_json((folder / "profile_export_aiperf.json").read_text())
good = [r for r in records if r.error is None]
print(len(records), len(good), int(summary.request_count.avg), summary.schema_version, JsonExportData.SCHEMA_VERSION)
