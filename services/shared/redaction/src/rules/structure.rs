//! Secrets that are recognized by their surroundings: headers, URLs, commands, files.

use super::rule::Rule;
use crate::values;

pub(super) const RULES: &[Rule] = &[
    Rule::prefixed("jwt", &["eyj"], r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"),
    Rule::around(
        "url-userinfo",
        &["://"],
        16,
        r"(?i)\b[a-z][a-z0-9+.-]{0,15}://[^\s/?#:@\x22'<>`]{0,128}:([^\s/?#\x22'<>`]+)@[a-z0-9_.\[$-]",
    ),
    Rule::around("url-token", &["://"], 16, r"(?i)\bhttps?://([a-z0-9_-]{20,})@[a-z0-9.]"),
    // `#` too: some flows hand tokens over in the fragment.
    Rule::around(
        "url-query",
        &["token=", "key=", "secret=", "password=", "passwd=", "signature=", "code="],
        24,
        r"(?i)[?&#](?:[a-z0-9]{1,12}[_-])?(?:access_?token|refresh_?token|id_?token|auth_?token|token|api_?key|client_?secret|secret|password|passwd|signature|code_verifier)=([^&#\s\x22'<>`]{4,})",
    ),
    Rule::around(
        "authorization-header",
        &["authorization"],
        1,
        r"(?i)\bauthorization\\*[\x22']?[ \t]?(?:[:=]|=>|,)[ \t]*\\*[\x22']?(?:(?:basic|bearer|token|apikey|api-key|digest|negotiate|ssws|aws4-hmac-sha256)[ \t]+)?([^\s\x22'\\][^\r\n\x22'\\]{5,})",
    )
    .accept(values::header),
    Rule::around("bearer", &["bearer"], 1, r"(?i)\bbearer(?:[ \t]+|%20)([A-Za-z0-9._~+/-]{12,}=*)").accept(values::mixed),
    Rule::around("basic-credentials", &["basic"], 1, r"(?i)\bbasic[ \t]+([A-Za-z0-9+/_-]{6,}={0,2})").accept(values::basic_credentials),
    Rule::around("cookie-header", &["cookie"], 5, r"(?i)\b(?:set-)?cookie\\*[\x22']?:[ \t]*\\*[\x22']?([^\s\x22'\\=]{1,64}=[^\r\n\x22'\\]{6,})"),
    Rule::around(
        "connection-string",
        &["password=", "pwd="],
        400,
        r"(?i)\b(?:server|data source|host|endpoint|user id|uid|username|user)[ \t]*=[^;\r\n]{1,128};[^\r\n]{0,256}?(?:password|pwd)[ \t]*=[ \t]*([^;\s\x22']+)",
    ),
    Rule::around("netrc", &["password"], 160, r"\blogin[ \t]+\S{1,64}[ \t]+password[ \t]+(\S+)"),
    Rule::around("pgpass", &[":5432:", ":3306:", ":6432:"], 128, r"[\w.*-]{1,128}:\d{4}:[\w.*-]{1,64}:[\w.*-]{1,64}:([^\s:]{3,})"),
    Rule::around("curl-user", &["curl"], 0, r"\bcurl\b[^\r\n|]{0,256}?[ \t](?:-u|--user|--proxy-user)[ \t=]*[\x22']?[^\s:\x22']{1,64}:([^\s\x22']+)"),
    Rule::around("mysql-password", &["mysql"], 0, r"\bmysql[a-z]*\b[^\r\n|;]{0,256}?[ \t]-p([^\s\x22']{4,})"),
    Rule::around("sshpass-password", &["sshpass"], 0, r"\bsshpass[ \t]+-p[ \t]*[\x22']?([^\s\x22']{3,})"),
    Rule::around("login-password", &[" login "], 8, r"\b(?:docker|podman|helm|oc|az|skopeo|oras)[ \t](?:registry[ \t])?login\b[^\r\n|;]{0,256}?[ \t]-p[ \t]*[\x22']?([^\s\x22']{3,})"),
    Rule::around("redis-password", &["redis-cli"], 0, r"\bredis-cli\b[^\r\n|;]{0,128}?[ \t]-a[ \t]+[\x22']?([^\s\x22']{3,})"),
    Rule::around("openssl-passphrase", &["pass:"], 16, r"-(?:pass|passin|passout|password)[ \t]+pass:([^\s\x22']{3,})"),
    Rule::around(
        "password-hash",
        &["$2a$", "$2b$", "$2y$", "$apr1$", "$5$", "$6$", "$y$", "$argon2"],
        0,
        r"(\$(?:2[aby]|apr1|5|6|y|argon2(?:i|d|id))\$[./A-Za-z0-9$=,+]{20,})",
    ),
    Rule::around(
        "xml-element",
        &["password>", "passwd>", "passphrase>", "secret>", "token>", "apikey>", "secretkey>", "accesskey>"],
        34,
        r"(?i)<(?:[\w.-]{1,20}:)?[\w.-]{0,32}?(?:password|passwd|passphrase|secret|token|apikey|secretkey|accesskey)>[ \t]*([^<>\s]{3,})[ \t]*</",
    ),
];
