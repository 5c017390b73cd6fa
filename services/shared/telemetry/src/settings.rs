//! The settings of the export, read from the environment variables that OpenTelemetry defines.

use std::{env, time::Duration};

use opentelemetry_sdk::trace::Sampler;
use thiserror::Error;
use tonic::{
    metadata::{Ascii, MetadataKey, MetadataValue},
    transport::Uri,
};

/// The protocol to the collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    /// OTLP/gRPC.
    Grpc,
    /// OTLP/HTTP with protobuf bodies.
    HttpProtobuf,
}

/// The port that OTLP/gRPC has by default; OTLP/HTTP has 4318.
const GRPC_PORT: u16 = 4317;

/// A kind of export: the word in the names of its variables, and the path of OTLP/HTTP's requests, relative to the endpoint for every signal.
#[derive(Clone, Copy)]
struct Signal {
    word: &'static str,
    path: &'static str,
}

const TRACES: Signal = Signal { word: "TRACES", path: "v1/traces" };
const METRICS: Signal = Signal { word: "METRICS", path: "v1/metrics" };

/// Where something is exported to.
#[derive(Clone, Debug)]
pub(crate) struct Destination {
    pub(crate) protocol: Protocol,
    /// For [`Protocol::HttpProtobuf`] the whole URL, its path included.
    pub(crate) endpoint: Uri,
    pub(crate) timeout: Duration,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) service_name: String,
    pub(crate) attributes: Vec<(String, String)>,
}

/// The destination of spans and the sampler. Read only from the environment, as OpenTelemetry defines it.
#[derive(Clone, Debug)]
pub struct Settings {
    pub(crate) to: Destination,
    /// How long a process that ends waits for the collector; `None` leaves that to the process.
    pub(crate) last_flush: Option<Duration>,
    pub(crate) sampler: Sampler,
    /// Whether spans have what models are asked and answer.
    pub(crate) has_messages: bool,
}

/// The destination of metrics, and how often they are sent. Read only from the environment, as OpenTelemetry defines it.
#[derive(Clone, Debug)]
pub struct MetricsSettings {
    pub(crate) to: Destination,
    pub(crate) interval: Duration,
}

/// A variable has a value that is not valid.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{variable} {problem}")]
pub struct InvalidSettings {
    /// The variable's name.
    pub variable: String,
    /// The problem, and what to do.
    pub problem: String,
}

type Variable<'a> = &'a dyn Fn(&str) -> Option<String>;

impl Settings {
    /// Reads the process's environment; `None` when the export is off.
    ///
    /// # Errors
    /// [`InvalidSettings`], naming the variable.
    pub fn from_env(service_name: &str) -> Result<Option<Self>, InvalidSettings> {
        Self::read(service_name, &|name| env::var(name).ok())
    }

    /// Reads variables through a function; `None` when the export is off. `service_name` is the default for `OTEL_SERVICE_NAME` and
    /// `OTEL_RESOURCE_ATTRIBUTES`.
    ///
    /// # Errors
    /// [`InvalidSettings`], naming the variable.
    pub fn read(service_name: &str, variable: Variable<'_>) -> Result<Option<Self>, InvalidSettings> {
        let get = trimmed(variable);
        let Some(to) = destination(TRACES, service_name, &get)? else { return Ok(None) };
        let last_flush = get(LAST_FLUSH).map(|text| milliseconds(LAST_FLUSH, &text)).transpose()?;
        let sampler = sampler(&get)?;
        let has_messages = match get(MESSAGES).map(|value| value.to_ascii_lowercase()).as_deref() {
            None | Some("false" | "no_content" | "event_only") => false,
            Some("true" | "span_only" | "span_and_event") => true,
            Some(value) => return refuse(MESSAGES, format!("is `{value}`: set it to `true` or to `false`")),
        };
        Ok(Some(Self { to, last_flush, sampler, has_messages }))
    }
}

impl MetricsSettings {
    /// As [`Settings::from_env`].
    ///
    /// # Errors
    /// [`InvalidSettings`], naming the variable.
    pub fn from_env(service_name: &str) -> Result<Option<Self>, InvalidSettings> {
        Self::read(service_name, &|name| env::var(name).ok())
    }

    /// As [`Settings::read`].
    ///
    /// # Errors
    /// [`InvalidSettings`], naming the variable.
    pub fn read(service_name: &str, variable: Variable<'_>) -> Result<Option<Self>, InvalidSettings> {
        let get = trimmed(variable);
        let Some(to) = destination(METRICS, service_name, &get)? else { return Ok(None) };
        let interval = get(INTERVAL).map(|text| milliseconds(INTERVAL, &text)).transpose()?;
        Ok(Some(Self { to, interval: interval.unwrap_or(Duration::from_secs(60)) }))
    }
}

fn trimmed(variable: Variable<'_>) -> impl Fn(&str) -> Option<String> {
    |name| variable(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
}

/// Where a signal is exported to; `None` when its export is off.
fn destination(
    signal: Signal,
    service_name: &str,
    get: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<Destination>, InvalidSettings> {
    let otlp = |what| otlp(signal, what, get);
    let exporter = format!("OTEL_{}_EXPORTER", signal.word);
    let is_off = get("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
        || get(&exporter).is_some_and(|value| value == "none");
    let Some((name, endpoint)) = otlp("ENDPOINT").filter(|_| !is_off) else { return Ok(None) };
    if let Some(value) = get(&exporter).filter(|value| value != "otlp") {
        return refuse(&exporter, format!("is `{value}`: set it to `otlp` or `none`"));
    }
    let base = checked_endpoint(&name, &endpoint)?;
    let protocol = match otlp("PROTOCOL") {
        // The standard's default is http/protobuf, which the standard gRPC port never serves.
        None if base.port_u16() == Some(GRPC_PORT) => Protocol::Grpc,
        None => Protocol::HttpProtobuf,
        Some((name, protocol)) => match protocol.as_str() {
            "grpc" => Protocol::Grpc,
            "http/protobuf" => Protocol::HttpProtobuf,
            _ => return refuse(&name, format!("is `{protocol}`: set it to `http/protobuf` or to `grpc`")),
        },
    };
    let endpoint = match protocol {
        // The endpoint for one signal is the whole URL; the endpoint for every signal is the base of the signals' paths.
        Protocol::HttpProtobuf if name == EVERY_ENDPOINT => with_path(&name, &base, signal.path)?,
        Protocol::HttpProtobuf | Protocol::Grpc => base,
    };
    if let Some((name, compression)) = otlp("COMPRESSION").filter(|(_, value)| value != "none") {
        return refuse(&name, format!("is `{compression}`, which is not supported: unset it, or set it to `none`"));
    }
    let timeout = match otlp("TIMEOUT") {
        None => Duration::from_secs(10),
        Some((name, text)) => milliseconds(&name, &text)?,
    };
    let headers = match otlp("HEADERS") {
        None => Vec::new(),
        Some((name, text)) => headers(&name, &text)?,
    };
    let attributes = match get("OTEL_RESOURCE_ATTRIBUTES") {
        None => Vec::new(),
        Some(text) => pairs(&text)
            .ok_or_else(|| not_valid("OTEL_RESOURCE_ATTRIBUTES", "must have the form `key=value,other=value`"))?,
    };
    let named = attributes.iter().rfind(|(key, _)| key == "service.name").map(|(_, value)| value.clone());
    let service_name = get("OTEL_SERVICE_NAME").or(named).unwrap_or_else(|| service_name.to_owned());
    Ok(Some(Destination { protocol, endpoint, timeout, headers, service_name, attributes }))
}

/// The endpoint of every signal.
const EVERY_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";

/// How long an export may take, in OpenTelemetry's words: here that of what is left when the process ends.
const LAST_FLUSH: &str = "OTEL_BSP_EXPORT_TIMEOUT";

/// Whether what models are asked and answer is in spans, in the words of OpenTelemetry's instrumentations of generative AI. Belay has no such events apart from spans.
const MESSAGES: &str = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT";

/// The time between two exports of metrics.
const INTERVAL: &str = "OTEL_METRIC_EXPORT_INTERVAL";

fn milliseconds(variable: &str, text: &str) -> Result<Duration, InvalidSettings> {
    match text.parse() {
        Ok(milliseconds) if milliseconds > 0 => Ok(Duration::from_millis(milliseconds)),
        _ => refuse(variable, format!("is `{text}` and must be a number of milliseconds above 0")),
    }
}

/// The variable for the signal, else the one for every signal, with its name.
fn otlp(signal: Signal, what: &str, get: &dyn Fn(&str) -> Option<String>) -> Option<(String, String)> {
    let names = [format!("OTEL_EXPORTER_OTLP_{}_{what}", signal.word), format!("OTEL_EXPORTER_OTLP_{what}")];
    names.into_iter().find_map(|name| get(&name).map(|value| (name, value)))
}

fn checked_endpoint(name: &str, endpoint: &str) -> Result<Uri, InvalidSettings> {
    if endpoint.starts_with("https://") {
        return refuse(
            name,
            "begins with https://, and TLS is not supported: use a collector on this host or network (http://) that forwards what it gets over TLS",
        );
    }
    let uri = endpoint.parse::<Uri>().ok();
    uri.filter(|uri| uri.scheme_str() == Some("http") && uri.host().is_some_and(|host| !host.is_empty()))
        .ok_or_else(|| not_valid(name, "must be a URL such as `http://localhost:4318`"))
}

fn with_path(name: &str, base: &Uri, path: &str) -> Result<Uri, InvalidSettings> {
    let authority = base.authority().map_or("", |authority| authority.as_str());
    let query = base.query().map(|query| format!("?{query}")).unwrap_or_default();
    let url = format!("http://{authority}{}/{path}{query}", base.path().trim_end_matches('/'));
    url.parse().map_err(|_| not_valid(name, "must be a URL such as `http://localhost:4318`"))
}

fn sampler(get: &dyn Fn(&str) -> Option<String>) -> Result<Sampler, InvalidSettings> {
    let Some(name) = get("OTEL_TRACES_SAMPLER") else { return Ok(Sampler::ParentBased(Box::new(Sampler::AlwaysOn))) };
    let (by_parent, own) = match name.strip_prefix("parentbased_") {
        Some(own) => (true, own),
        None => (false, name.as_str()),
    };
    let own = match own {
        "always_on" => Sampler::AlwaysOn,
        "always_off" => Sampler::AlwaysOff,
        "traceidratio" => match get("OTEL_TRACES_SAMPLER_ARG").map(|text| text.parse::<f64>()) {
            None => Sampler::TraceIdRatioBased(1.0),
            Some(Ok(ratio)) if (0.0..=1.0).contains(&ratio) => Sampler::TraceIdRatioBased(ratio),
            Some(_) => return refuse("OTEL_TRACES_SAMPLER_ARG", "must be a number from 0.0 to 1.0"),
        },
        _ => {
            return refuse(
                "OTEL_TRACES_SAMPLER",
                format!(
                    "is `{name}` and must be always_on, always_off or traceidratio, or one of them with the prefix parentbased_"
                ),
            );
        }
    };
    Ok(if by_parent { Sampler::ParentBased(Box::new(own)) } else { own })
}

/// Parses the headers. Errors never contain a value, which is often a token.
fn headers(variable: &str, text: &str) -> Result<Vec<(String, String)>, InvalidSettings> {
    let pairs = pairs(text).ok_or_else(|| not_valid(variable, "must have the form `key=value,other=value`"))?;
    for (key, value) in &pairs {
        let refused = |what| not_valid(variable, format!("gives the header `{key}` {what} that is not valid in HTTP"));
        MetadataKey::<Ascii>::from_bytes(key.to_ascii_lowercase().as_bytes()).map_err(|_| refused("a name"))?;
        value.parse::<MetadataValue<Ascii>>().map_err(|_| refused("a value"))?;
    }
    Ok(pairs)
}

/// `key=value,other=value`, with percent-encoded values.
fn pairs(text: &str) -> Option<Vec<(String, String)>> {
    let members = text.split(',').map(str::trim).filter(|member| !member.is_empty());
    members
        .map(|member| {
            let (key, value) = member.split_once('=')?;
            let (key, value) = (key.trim(), decoded(value.trim())?);
            (!key.is_empty()).then(|| (key.to_owned(), value))
        })
        .collect()
}

fn decoded(text: &str) -> Option<String> {
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        bytes.extend_from_slice(rest.as_bytes());
    }
    String::from_utf8(bytes).ok()
}

fn not_valid(variable: &str, problem: impl Into<String>) -> InvalidSettings {
    InvalidSettings { variable: variable.to_owned(), problem: problem.into() }
}

fn refuse<T>(variable: &str, problem: impl Into<String>) -> Result<T, InvalidSettings> {
    Err(not_valid(variable, problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4317");

    fn read(variables: &[(&str, &str)]) -> Result<Option<Settings>, InvalidSettings> {
        let variables = variables.to_vec();
        Settings::read("belay-test", &|name| {
            variables.iter().rfind(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn nothing_is_sent_unless_an_endpoint_is_named() {
        assert!(read(&[]).unwrap().is_none());
        assert!(read(&[("OTEL_EXPORTER_OTLP_ENDPOINT", " ")]).unwrap().is_none());
        assert!(read(&[ENDPOINT, ("OTEL_SDK_DISABLED", "True")]).unwrap().is_none());
        assert!(read(&[ENDPOINT, ("OTEL_TRACES_EXPORTER", "none")]).unwrap().is_none());
        assert!(read(&[ENDPOINT, ("OTEL_SDK_DISABLED", "false"), ("OTEL_TRACES_EXPORTER", "otlp")]).unwrap().is_some());
    }

    #[test]
    fn the_variables_are_followed() {
        let settings = read(&[
            ENDPOINT,
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://traces:4317"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "2500"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=a%20b , authorization=Bearer%20x"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=from-attributes,deployment.environment.name=test"),
        ]);
        let settings = settings.unwrap().unwrap();
        assert_eq!(settings.to.endpoint, "http://traces:4317");
        assert_eq!(settings.to.protocol, Protocol::Grpc);
        assert_eq!(settings.to.timeout, Duration::from_millis(2500));
        assert_eq!(
            settings.to.headers,
            [("x-tenant".into(), "a b".into()), ("authorization".into(), "Bearer x".into())]
        );
        assert_eq!(settings.to.service_name, "from-attributes");
        assert_eq!(settings.to.attributes.len(), 2);
        let named =
            read(&[ENDPOINT, ("OTEL_SERVICE_NAME", "mine"), ("OTEL_RESOURCE_ATTRIBUTES", "service.name=other")]);
        assert_eq!(named.unwrap().unwrap().to.service_name, "mine");
        assert_eq!(read(&[ENDPOINT]).unwrap().unwrap().to.service_name, "belay-test");
    }

    /// The rules of the OpenTelemetry specification for `OTEL_EXPORTER_OTLP_ENDPOINT` and `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`.
    #[test]
    fn over_http_the_endpoint_for_every_signal_gets_the_path_of_traces_and_the_one_for_traces_is_the_whole_url() {
        let url = |variables: &[(&str, &str)]| {
            let settings = read(variables).unwrap().unwrap();
            (settings.to.protocol, settings.to.endpoint.to_string())
        };
        let http = |url: &str| (Protocol::HttpProtobuf, url.to_owned());
        const EVERY: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
        const TRACES: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
        assert_eq!(url(&[(EVERY, "http://c:4318")]), http("http://c:4318/v1/traces"));
        assert_eq!(url(&[(EVERY, "http://c:4318/")]), http("http://c:4318/v1/traces"));
        assert_eq!(url(&[(EVERY, "http://c/mine/")]), http("http://c/mine/v1/traces"));
        assert_eq!(url(&[(EVERY, "http://c/mine?key=1")]), http("http://c/mine/v1/traces?key=1"));
        assert_eq!(url(&[(EVERY, "http://c:1"), (TRACES, "http://t:4318/spans")]), http("http://t:4318/spans"));
        assert_eq!(url(&[(TRACES, "http://t:4318")]), http("http://t:4318/"));
    }

    #[test]
    fn the_protocol_is_the_one_for_traces_or_for_every_signal_or_http_except_on_grpcs_port() {
        const EVERY: &str = "OTEL_EXPORTER_OTLP_PROTOCOL";
        const TRACES: &str = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL";
        let other_port = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:9999");
        let protocol = |variables: &[(&str, &str)]| read(variables).unwrap().unwrap().to.protocol;
        assert_eq!(protocol(&[ENDPOINT]), Protocol::Grpc, "4317 is the port of OTLP over gRPC");
        assert_eq!(protocol(&[other_port]), Protocol::HttpProtobuf);
        assert_eq!(protocol(&[other_port, (EVERY, "grpc")]), Protocol::Grpc);
        assert_eq!(protocol(&[ENDPOINT, (EVERY, "http/protobuf")]), Protocol::HttpProtobuf);
        assert_eq!(protocol(&[ENDPOINT, (EVERY, "grpc"), (TRACES, "http/protobuf")]), Protocol::HttpProtobuf);
        assert_eq!(protocol(&[ENDPOINT, (EVERY, "nonsense"), (TRACES, "grpc")]), Protocol::Grpc);
    }

    #[test]
    fn metrics_have_variables_of_their_own() {
        let read = |variables: &[(&str, &str)]| {
            let variables = variables.to_vec();
            MetricsSettings::read("belay-test", &|name| {
                variables.iter().rfind(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            })
        };
        const EVERY: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318");
        assert!(read(&[]).unwrap().is_none());
        assert!(read(&[EVERY, ("OTEL_METRICS_EXPORTER", "none")]).unwrap().is_none());
        let settings = read(&[EVERY, ("OTEL_TRACES_EXPORTER", "none")]).unwrap().unwrap();
        assert_eq!(
            (settings.to.endpoint.to_string().as_str(), settings.interval.as_secs()),
            ("http://c:4318/v1/metrics", 60)
        );
        let own =
            [EVERY, ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://m:4317"), ("OTEL_METRIC_EXPORT_INTERVAL", "500")];
        let settings = read(&own).unwrap().unwrap();
        assert_eq!((settings.to.protocol, settings.interval.as_millis()), (Protocol::Grpc, 500));
        for (variable, value) in [("OTEL_METRIC_EXPORT_INTERVAL", "0"), ("OTEL_METRICS_EXPORTER", "prometheus")] {
            assert_eq!(read(&[EVERY, (variable, value)]).unwrap_err().variable, variable);
        }
    }

    #[test]
    fn an_invalid_variable_is_refused_by_name() {
        let cases = [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http", "set it to `http/protobuf` or to `grpc`"),
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json", "is `http/json`"),
            ("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip", "not supported"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a b=c", "`a b` a name"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "a=%0A", "`a` a value"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://collector:4317", "TLS is not supported"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4317", "such as `http://localhost:4318`"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://", "such as `http://localhost:4318`"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s", "milliseconds"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "0", "above 0"),
            ("OTEL_BSP_EXPORT_TIMEOUT", "1s", "milliseconds"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "no pair", "key=value"),
            ("OTEL_RESOURCE_ATTRIBUTES", "a=%zz", "key=value"),
            ("OTEL_TRACES_SAMPLER", "xray", "parentbased_"),
            ("OTEL_TRACES_EXPORTER", "zipkin", "`otlp`"),
        ];
        for (variable, value, says) in cases {
            let refused = read(&[ENDPOINT, (variable, value)]).unwrap_err();
            assert_eq!(refused.variable, variable);
            assert!(refused.to_string().contains(says), "{refused}");
        }
        let refused = read(&[ENDPOINT, ("OTEL_TRACES_SAMPLER", "traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "2")]);
        assert_eq!(refused.unwrap_err().variable, "OTEL_TRACES_SAMPLER_ARG");
    }
}
