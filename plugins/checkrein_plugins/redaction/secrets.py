"""Detectors of secrets: tokens of known make, JWT, passwords in addresses, keyed values."""

from __future__ import annotations

import base64
import binascii
import json
import re

from checkrein_plugins.redaction.detector import Detector, before
from checkrein_plugins.redaction.findings import Finding
from checkrein_plugins.redaction.validators import entropy

TOKENS: tuple[tuple[str, bytes], ...] = (
    ("aws", rb"(?:AKIA|ASIA|ABIA|ACCA|A3T[A-Z0-9])[A-Z0-9]{16}"),
    ("github", rb"gh[pousr]_[A-Za-z0-9]{36,255}"),
    ("github", rb"github_pat_[A-Za-z0-9_]{40,255}"),
    ("gitlab", rb"gl(?:pat|dt|soat|cbt|ft|rt|rtr|ffct)-[A-Za-z0-9_-]{20,300}"),
    ("gitlab", rb"gl(?:imt-[A-Za-z0-9_-]{25}|ptt-[A-Za-z0-9_-]{40}|oas-[A-Za-z0-9_-]{64})"),
    ("gitlab", rb"glagent-[A-Za-z0-9_-]{50,1024}"),
    ("gitlab", rb"GR1348941[A-Za-z0-9_-]{20,100}"),
    ("slack", rb"xox[abeoprs](?:\.xox[bp])?-[A-Za-z0-9-]{10,300}"),
    ("slack", rb"xapp-\d-[A-Za-z0-9-]{20,300}"),
    ("stripe", rb"[sr]k_(?:live|test)_[A-Za-z0-9]{10,250}"),
    ("webhook", rb"whsec_[A-Za-z0-9+/=_-]{24,100}"),
    ("anthropic", rb"sk-ant-[A-Za-z0-9_-]{20,250}"),
    ("openai", rb"sk-(?:proj|svcacct|admin|None)-[A-Za-z0-9_-]{20,300}"),
    ("openrouter", rb"sk-or-(?:v1-)?[A-Za-z0-9_-]{32,100}"),
    ("langfuse", rb"sk-lf-[A-Za-z0-9-]{20,60}"),
    ("openai", rb"sk-[A-Za-z0-9]{20,128}"),
    ("google", rb"AIza[A-Za-z0-9_-]{35}"),
    ("google", rb"GOCSPX-[A-Za-z0-9_-]{28}"),
    ("google", rb"ya29\.[A-Za-z0-9_-]{20,500}"),
    ("huggingface", rb"(?:hf|api_org)_[A-Za-z0-9]{34,64}"),
    ("npm", rb"npm_[A-Za-z0-9]{36}"),
    ("pypi", rb"pypi-AgE[A-Za-z0-9_-]{50,300}"),
    ("rubygems", rb"rubygems_[a-f0-9]{48}"),
    ("sendgrid", rb"SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{16,64}"),
    ("twilio", rb"(?:AC|SK)[0-9a-z]{32}"),
    ("mailchimp", rb"[0-9a-f]{32}-us\d{1,2}"),
    ("mailgun", rb"key-[0-9a-z]{32}"),
    ("brevo", rb"xkeysib-[a-f0-9]{64}-[A-Za-z0-9]{16}"),
    ("discord", rb"[MNO][A-Za-z0-9_-]{23,25}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,40}"),
    ("telegram", rb"\d{8,10}:AA[A-Za-z0-9_-]{33}"),
    ("digitalocean", rb"do[opr]_v1_[a-f0-9]{64}"),
    ("doppler", rb"dp\.(?:pt|st|ct|scim|audit|sa)\.(?:[a-z0-9_-]{2,35}\.)?[A-Za-z0-9]{40,44}"),
    ("databricks", rb"dapi[a-f0-9]{32}(?:-\d)?"),
    ("shopify", rb"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}"),
    ("square", rb"(?:sq0(?:atp|csp|idp)-[A-Za-z0-9_-]{22,43}|EAAA[A-Za-z0-9_-]{60})"),
    ("postman", rb"PMAK-[a-f0-9]{24}-[a-f0-9]{34}"),
    ("linear", rb"lin_(?:api|oauth)_[A-Za-z0-9]{40}"),
    ("notion", rb"(?:secret_[A-Za-z0-9]{43}|ntn_[A-Za-z0-9]{40,50})"),
    ("grafana", rb"(?:glc_[A-Za-z0-9+/]{32,400}=*|glsa_[A-Za-z0-9]{32}_[A-Fa-f0-9]{8})"),
    ("newrelic", rb"NR(?:AK|II|RA|BR)-[A-Za-z0-9]{20,42}"),
    ("planetscale", rb"pscale_(?:tkn|oauth|pw)_[A-Za-z0-9_.-]{32,64}"),
    ("vault", rb"hv[sbr]\.[A-Za-z0-9_-]{24,300}"),
    ("terraform", rb"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_-]{60,70}"),
    ("atlassian", rb"AT[AC]TT3[A-Za-z0-9_=-]{60,250}"),
    ("bitbucket", rb"ATBB[A-Za-z0-9]{32}"),
    ("fly", rb"(?:fm[12]_[A-Za-z0-9+/]{60,600}=*|fo1_[A-Za-z0-9_-]{43})"),
    ("replicate", rb"r8_[A-Za-z0-9]{37}"),
    ("groq", rb"gsk_[A-Za-z0-9]{48,56}"),
    ("perplexity", rb"pplx-[A-Za-z0-9]{40,56}"),
    ("xai", rb"xai-[A-Za-z0-9]{70,90}"),
    ("pinecone", rb"pcsk_[A-Za-z0-9_]{40,90}"),
    ("langsmith", rb"lsv2_(?:pt|sk)_[a-f0-9]{32}_[a-f0-9]{10}"),
    ("tavily", rb"tvly-(?:dev-|prod-)?[A-Za-z0-9]{20,48}"),
    ("supabase", rb"sb(?:p_[a-f0-9]{40}|_secret_[A-Za-z0-9_-]{20,60})"),
    ("sentry", rb"sntry[su]_[A-Za-z0-9+/=_-]{40,300}"),
    ("airtable", rb"pat[A-Za-z0-9]{14}\.[a-f0-9]{64}"),
    ("figma", rb"figd_[A-Za-z0-9_-]{36,60}"),
    ("dropbox", rb"sl\.[A-Za-z0-9_-]{100,1000}"),
    ("facebook", rb"EAA[A-Za-z0-9]{80,300}"),
    ("docker", rb"dckr_(?:pat|oat)_[A-Za-z0-9_-]{24,40}"),
    ("artifactory", rb"AKCp[A-Za-z0-9]{60,80}"),
    ("nuget", rb"oy2[a-z0-9]{43}"),
    ("crates", rb"cio[A-Za-z0-9]{32}"),
    ("age", rb"AGE-SECRET-KEY-1[A-Z0-9]{58}"),
    ("resend", rb"re_[A-Za-z0-9]{8}_[A-Za-z0-9]{22,26}"),
    ("razorpay", rb"rzp_(?:live|test)_[A-Za-z0-9]{14}"),
    ("alibaba", rb"LTAI[A-Za-z0-9]{12,24}"),
    ("pulumi", rb"pul-[a-f0-9]{40}"),
    ("dynatrace", rb"dt0c01\.[A-Z0-9]{24}\.[A-Z0-9]{64}"),
    ("flutterwave", rb"FLWSECK(?:_TEST)?-[A-Za-z0-9-]{20,60}"),
    ("typeform", rb"tfp_[A-Za-z0-9_.-]{40,70}"),
    ("netlify", rb"nf[pcu]_[A-Za-z0-9]{36,50}"),
    ("heroku", rb"HRKU-[A-Za-z0-9_-]{36,70}"),
    ("contentful", rb"CFPAT-[A-Za-z0-9_-]{43}"),
    ("shippo", rb"shippo_(?:live|test)_[a-f0-9]{40}"),
    ("easypost", rb"EZ[AT]K[A-Za-z0-9]{54}"),
    ("duffel", rb"duffel_(?:test|live)_[A-Za-z0-9_-]{43}"),
    ("prefect", rb"pn[ub]_[A-Za-z0-9]{36}"),
    ("asana", rb"[12]/\d{10,20}(?:/\d{10,20})?:[a-f0-9]{32}"),
    ("slack", rb"https://hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9/_-]{20,120}"),
    ("teams", rb"https://[a-z0-9-]{1,60}\.webhook\.office\.com/webhookb2/[A-Za-z0-9@/-]{60,200}"),
    ("discord", rb"https://(?:(?:canary|ptb)\.)?discord(?:app)?\.com/api/webhooks/\d{15,21}/[\w-]{50,80}"),
)  # fmt: skip
"""Subtype and form of tokens of known make, as their vendors document or show them. A row that is
added needs its beginning in `_HEADS` (or its middle in the detector `token_by_middle`)."""

_HEADS = (
    rb"AKIA|ASIA|ABIA|ACCA|A3T[A-Z0-9]|gh[pousr]_|github_pat_|gl(?:pat|dt|soat|cbt|ft|imt|ptt"
    rb"|agent|oas|rt|rtr|ffct)-|GR1348941|xox[abeoprs][.-]|xapp-|[sr]k_(?:live|test)_|whsec_"
    rb"|sk-|AIza|GOCSPX-|ya29\.|hf_|api_org_|npm_|pypi-AgE|rubygems_|SG\.|AC[0-9a-z]{4}"
    rb"|SK[0-9a-z]{4}|key-|xkeysib-|do[opr]_v1_|dp\.[a-z]{2,5}\.|dapi[a-f0-9]{4}|shp(?:at|ca|pa"
    rb"|ss)_"
    rb"|sq0(?:atp|csp|idp)-|EAA[A-Za-z0-9]{4}|PMAK-|lin_|secret_|ntn_|gl(?:c|sa)_|NR[A-Z]{2}-"
    rb"|pscale_|hv[sbr]\.|AT[AC]TT3|ATBB|fm[12]_|fo1_|r8_|gsk_|pplx-|xai-|pcsk_|lsv2_|tvly-"
    rb"|sbp_|sb_secret_|sntry[su]_|pat[A-Za-z0-9]{4}|figd_|sl\.|dckr_|AKCp|oy2|cio"
    rb"|AGE-SECRET-KEY-|re_|rzp_|LTAI|pul-|dt0c01\.|FLWSECK|tfp_|nf[pcu]_|HRKU-|CFPAT-|shippo_"
    rb"|EZ[AT]K|duffel_|pn[ub]_"
    rb"|https://hooks\.slack\.com/|https://(?:(?:canary|ptb)\.)?discord(?:app)?\.com/api/webhooks/"
    rb"|https://[a-z0-9-]{1,60}\.webhook\.office\.com/|[12]/\d{8}"
)
"""How tokens begin; what follows is cut out as one run and judged by `TOKENS`."""
_TOKEN_TRIGGERS = (rb"\b(?:" + _HEADS + rb")[A-Za-z0-9_-]{3}",)

_ALL_TOKENS = re.compile(rb"|".join(rb"(" + form + rb")" for _, form in TOKENS))


def _token(data: bytes, start: int, end: int) -> Finding | None:
    """A run that begins like a token: its maker's form must fit, up to the end of the word."""
    if start and data[start - 1] in b"-_/" and data[start] != 104:
        return None
    match = _ALL_TOKENS.match(data, start, end)
    if match is None or match.lastindex is None:
        return None
    kind = TOKENS[match.lastindex - 1][0]
    last = match.end()
    follow = data[last : last + 1]
    if follow and (follow.isalnum() or follow in b"_"):
        if last - start < _OPEN_TOKEN:
            return None
        last = end
    if follow == b"-" and data[last + 1 : last + 2].isalnum():
        return None
    if kind in ("openai", "crates", "nuget") and not re.search(rb"\d", data[start:last]):
        return None
    while data[last : last + 1] == b"=":
        last += 1
    return Finding(start, last, "secret", kind)


_OPEN_TOKEN = 200
"""A longer token than its maker's form allows is still one from this length on."""


def _decoded(part: bytes) -> object:
    """A Base64url part of a token as JSON; None if it is none."""
    try:
        return json.loads(base64.urlsafe_b64decode(part + b"=" * (-len(part) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        return None


def _jwt(data: bytes, start: int, end: int) -> Finding | None:
    """The header must be a JSON object that names an algorithm or a type (RFC 7515)."""
    if data[start - 1 : start] in (b"-", b"_", b"."):
        return None
    header = data[start : data.index(b".", start)]
    if len(header) > 1500:
        return Finding(start, end, "secret", "jwt")
    decoded = _decoded(header)
    if isinstance(decoded, dict) and ("alg" in decoded or "typ" in decoded or "enc" in decoded):
        return Finding(start, end, "secret", "jwt")
    return None


def _password_in_url(data: bytes, start: int, end: int) -> Finding | None:
    """The password of `scheme://user:password@host`."""
    at = data.rfind(b"@", start, end)
    colon = data.find(b":", data.find(b"://", start, at) + 3, at)
    if colon < 0 or colon + 1 == at:
        return None
    value = data[colon + 1 : at]
    if _PLACEHOLDER.match(value.decode("latin-1")):
        return None
    return Finding(colon + 1, at, "secret", "password")


_PLACEHOLDER = re.compile(
    r"(?:\$\{?|<|\{\{|%\(|%s|\{)|(?i:x{3,}|\*{3,}|\.{3,}|your|changeme|example|placeholder|dummy|none"
    r"|null|true|false|undefined|redacted|\[|os\.|env\.|process\.|self\.|getenv|config\.)"
)

_STRONG = re.compile(
    rb"pass|pwd|secret|api.?key|auth.?token|access.?key|account.?key|private.?key|shared.?access"
    rb"|client.?secret|access.?token|bearer|refresh.?token|bot.?token|signing.?key|encryption.?key"
)
_WEAK_NAME = re.compile(
    rb"next|page|continu|cursor|count|max|num|type|name|_id|url|path|file"
    rb"|len|csrf"
)
_IDENTIFIER = re.compile(
    r"[A-Za-z_][A-Za-z0-9_]{0,80}(?:(?:\.|->|::)[A-Za-z_][A-Za-z0-9_]{0,80}){0,8}[(\[]?"
)
_CALL = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,80}[(\[]")
_UUID = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_HEX = re.compile(r"[0-9a-fA-F]{16,128}")
_NAME = re.compile(
    rb"(?i)[a-z_-]{2,12}(?: key)?[a-z0-9_.-]{0,24}[\"'`]?(?:[ \t]{0,4}(?:=>|:=|==?|:"
    rb"|\x01)[ \t]{0,4}"
    rb"|[ \t]{1,4}(?:is[ \t]{1,2})?)(?:(?:bearer|basic|token)[ \t]{1,4})?[\"'`]?"
)


def _secret_like(value: str, key: bytes, quoted: bool) -> bool:
    size = len(value)
    if size < 6 or _PLACEHOLDER.match(value) or _CALL.match(value):
        return False
    kinds = (
        any(char.isdigit() for char in value) + any(char.islower() for char in value)
        + any(char.isupper() for char in value) + any(not char.isalnum() for char in value)
    )  # fmt: skip
    word = b"pass" in key or b"pwd" in key
    if word:
        if _IDENTIFIER.fullmatch(value) and not (kinds >= 3 and any(c.isdigit() for c in value)):
            return quoted and size >= 8 and kinds >= 2 and any(c.isdigit() for c in value)
        return kinds >= 2 and len(set(value)) >= 5 and not value.endswith(("(", ")"))
    if size < 16 or len(set(value)) < 8:
        return False
    if _UUID.fullmatch(value):
        return bool(_STRONG.search(key)) and b"id" not in key[-4:]
    if not any(char.isdigit() for char in value):
        return False
    if _HEX.fullmatch(value):
        return bool(_STRONG.search(key)) and size >= 20
    if _IDENTIFIER.fullmatch(value) and ("_" in value or "." in value) and value.islower():
        return False
    return kinds >= 2 and entropy(value) >= (3.2 if _STRONG.search(key) else 3.7)


def _keyed(data: bytes, start: int, end: int) -> Finding | None:
    """A value behind a name that says it is secret, if it looks like one."""
    name = _NAME.match(data, start, end)
    if name is None:
        return None
    key = name[0].lower()
    before_name = before(data, start, 10)
    if _WEAK_NAME.search(before_name + _SEPARATOR.split(key, maxsplit=1)[0]) and not _STRONG.search(
        key
    ):
        return None
    at = name.end()
    quoted = data[at - 1] in b"\"'`\1"
    value = data[at:end].decode("latin-1")
    if not quoted and not _SEPARATOR.search(key):
        # "password Tr0ub4dor": without a sign in between it has to look like nothing else.
        if not any(char.isdigit() for char in value):
            return None
    return Finding(at, end, "secret", "keyed") if _secret_like(value, key, quoted) else None


_SEPARATOR = re.compile(rb"[=:\x01]")


DETECTORS = (
    Detector(
        "token", frozenset({"secret"}),
        rb"\b(?:" + _HEADS + rb")[A-Za-z0-9_./+:@-]{6}[A-Za-z0-9_./+:@-]*",
        _TOKEN_TRIGGERS,
        _token,
    ),
    Detector(
        "token_by_middle", frozenset({"secret"}),
        rb"[A-Za-z0-9_-]{8,}(?::AA[A-Za-z0-9_-]{33}|-us\d{1,2}\b"
        rb"|\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{20,}|\.atlasv1\.[A-Za-z0-9_-]{20,}"
        rb"|\.[a-f0-9]{64})",
        (rb":AA[A-Za-z0-9_-]{8}", rb"[0-9a-f]{8}-us\d", rb"\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{12}",
        rb"\.atlasv1\.", rb"\bpat[A-Za-z0-9]{14}\."),
        _token,
        retry=False,
    ),
    Detector(
        "jwt", frozenset({"secret"}),
        rb"\bey[JK][A-Za-z0-9_-]{12,}\.(?:ey[JKA-Za-z0-9_-]{4,}"
        rb"|[A-Za-z0-9_-]{0,600}\.[A-Za-z0-9_-]{16,})(?:\.[A-Za-z0-9_-]+){0,3}",
        (rb"\bey[JK][A-Za-z0-9_-]{8}",),
        _jwt,
        retry=False,
    ),
    Detector(
        "url_password", frozenset({"secret"}),
        rb"\b[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s\"'<>/@:\x00-\x20\xd7]{0,128}:[^\s\"'<>/\x00-\x20\xd7]{1,256}@",
        (rb"://[^\s\"'<>/@:]{0,64}:[^\s\"'<>/@]",),
        _password_in_url,
    ),
    Detector(
        "keyed", frozenset({"secret"}),
        rb"(?i)(?:passw(?:or)?d|passwd|passphrase|pass|pwd|secret|token|api[_ .-]?key|apikey"
        rb"|access[_ .-]?key|account[_-]?key"
        rb"|private[_-]?key|signing[_-]?key|encryption[_-]?key|shared[_-]?access[_-]?key"
        rb"|credential|authorization|bearer|x-api-key|authtoken)"
        rb"[a-z0-9_.-]{0,24}[\"'`]?(?:[ \t]{0,4}(?:=>|:=|==?|:|\x01)[ \t]{0,4}"
        rb"|[ \t]{1,4}(?:is[ \t]{1,2})?)(?:(?:bearer|basic|token)[ \t]{1,4})?"
        rb"(?:\"[^\s\"\x00\x01\xd7]{6,}|'[^\s'\"\x00\x01\xd7]{6,}|`[^\s`\"\x00\x01\xd7]{6,}"
        rb"|[^\s\"'`,;<>\x00\x01\xd7]{6,})",
        ((rb"(?i)passw|passph|pass[\"']?[:=]|pwd|secret|token|api[_ .-]?key|access[_ .-]?key"
        rb"|account.?key|private.?key|signing.?key|encryption.?key|credential|authoriz|bearer"),),
        _keyed,
        lookback=True,
    ),
)  # fmt: skip
"""Except PEM blocks, which have no bound and are read by `pieces`."""
