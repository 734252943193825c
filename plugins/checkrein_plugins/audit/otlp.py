"""The audit log as OpenTelemetry log records, over HTTP."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from checkrein.errors import ConfigError

TIMEOUT = 5.0
"""Seconds that the collector has for one request."""


class Sender:
    """Sends rows to a collector, in batches. Raises `ConfigError` without the extra `otel`."""

    def __init__(self, url: str) -> None:
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"audit.otlp {url}: must be an http:// or https:// address")
        try:
            from opentelemetry._logs import LogRecord, SeverityNumber
            from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
            from opentelemetry.sdk._logs import LoggerProvider
            from opentelemetry.sdk._logs.export import (
                BatchLogRecordProcessor,
                LogRecordExportResult,
            )
            from opentelemetry.sdk.resources import Resource
        except ImportError as error:
            raise ConfigError(
                f"audit.otlp needs the extra otel ({error}): pip install 'checkrein[otel]'"
            ) from error
        address = url.rstrip("/")
        if not address.endswith("/v1/logs"):
            address += "/v1/logs"
        sender = self
        self.refused = 0
        """Records that the collector did not take."""

        class Counting(OTLPLogExporter):
            """Counts what was not taken: an exporter itself only logs it."""

            def export(self, batch: Sequence[Any]) -> LogRecordExportResult:
                result = super().export(batch)
                if result is not LogRecordExportResult.SUCCESS:
                    sender.refused += len(batch)
                return result

        self._provider = LoggerProvider(resource=Resource.create({"service.name": "checkrein"}))
        exporter = Counting(endpoint=address, timeout=TIMEOUT)
        self._provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
        self._logger = self._provider.get_logger("checkrein.audit")
        self._record, self._level = LogRecord, SeverityNumber.INFO

    def __call__(self, row: dict[str, Any]) -> None:
        """Send one row: its view is the body, the rest are attributes."""
        self._logger.emit(
            self._record(
                timestamp=row["at"] * 1000,
                severity_number=self._level,
                event_name=f"checkrein.{row['kind']}",
                body=json.dumps(row["view"], ensure_ascii=False),
                attributes={
                    f"checkrein.{name}": row[name]
                    for name in ("seq", "session", "n", "call", "attempt", "hash", "prev", "ref")
                },
            )
        )

    def close(self) -> None:
        """Send what waits."""
        self._provider.shutdown()
