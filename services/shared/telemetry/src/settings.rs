//! Where spans go, read from the variables that OpenTelemetry defines.

use std::{env, time::Duration};

use opentelemetry_sdk::trace::Sampler;
use thiserror::Error;

/// Where spans go and which are sent. Made from the environment only, as everywhere with OpenTelemetry.
#[derive(Clone, Debug)]
pub struct Settings {
    pub(crate) endpoint: String,
    pub(crate) timeout: Duration,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) service_name: String,
    pub(crate) attributes: Vec<(String, String)>,
    pub(crate) sampler: Sampler,
}

/// A variable has a value that cannot be followed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{variable} {problem}")]
pub struct SettingsRefused {
    /// The variable's name.
    pub variable: String,
    /// What is wrong, and what to do.
    pub problem: String,
}

type Variable<'a> = &'a dyn Fn(&str) -> Option<String>;

impl Settings {
    /// Reads the process's environment; nothing when spans are not to be sent.
    ///
    /// # Errors
    /// [`SettingsRefused`], naming the variable.
    pub fn from_env(service_name: &str) -> Result<Option<Self>, SettingsRefused> {
        Self::read(service_name, &|name| env::var(name).ok())
    }

    /// Reads variables from wherever they are; nothing when spans are not to be sent. `service_name` holds unless `OTEL_SERVICE_NAME` or
    /// `OTEL_RESOURCE_ATTRIBUTES` gives another.
    ///
    /// # Errors
    /// [`SettingsRefused`], naming the variable.
    pub fn read(service_name: &str, variable: Variable<'_>) -> Result<Option<Self>, SettingsRefused> {
        let get = |name: &str| variable(name).map(|value| value.trim().to_owned()).filter(|value| !value.is_empty());
        let is_off = get("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
            || get("OTEL_TRACES_EXPORTER").is_some_and(|value| value == "none");
        let Some((name, endpoint)) = otlp("ENDPOINT", &get).filter(|_| !is_off) else { return Ok(None) };
        if let Some(exporter) = get("OTEL_TRACES_EXPORTER").filter(|value| value != "otlp") {
            return refuse(
                "OTEL_TRACES_EXPORTER",
                format!("is `{exporter}`, and spans are sent by `otlp` or, with `none`, not at all"),
            );
        }
        if let Some((name, protocol)) = otlp("PROTOCOL", &get).filter(|(_, protocol)| protocol != "grpc") {
            return refuse(
                &name,
                format!(
                    "is `{protocol}`, and spans are sent by `grpc` only: set it to `grpc`, and the endpoint to the collector's gRPC port (4317 unless it was changed)"
                ),
            );
        }
        check_endpoint(&name, &endpoint)?;
        let timeout = match otlp("TIMEOUT", &get) {
            None => Duration::from_secs(10),
            Some((name, text)) => match text.parse() {
                Ok(milliseconds) if milliseconds > 0 => Duration::from_millis(milliseconds),
                _ => return refuse(&name, format!("is `{text}`, and has to be a number of milliseconds above 0")),
            },
        };
        let headers = match otlp("HEADERS", &get) {
            None => Vec::new(),
            // The value is not repeated: it holds a token more often than not.
            Some((name, text)) => {
                pairs(&text).ok_or_else(|| not_followed(&name, "has to be written like `key=value,other=value`"))?
            }
        };
        let attributes = match get("OTEL_RESOURCE_ATTRIBUTES") {
            None => Vec::new(),
            Some(text) => pairs(&text).ok_or_else(|| {
                not_followed("OTEL_RESOURCE_ATTRIBUTES", "has to be written like `key=value,other=value`")
            })?,
        };
        let named = attributes.iter().rfind(|(key, _)| key == "service.name").map(|(_, value)| value.clone());
        let service_name = get("OTEL_SERVICE_NAME").or(named).unwrap_or_else(|| service_name.to_owned());
        let sampler = sampler(&get)?;
        Ok(Some(Self { endpoint, timeout, headers, service_name, attributes, sampler }))
    }
}

/// The variable for spans, else the one for everything, with its name.
fn otlp(what: &str, get: &dyn Fn(&str) -> Option<String>) -> Option<(String, String)> {
    let names = [format!("OTEL_EXPORTER_OTLP_TRACES_{what}"), format!("OTEL_EXPORTER_OTLP_{what}")];
    names.into_iter().find_map(|name| get(&name).map(|value| (name, value)))
}

fn check_endpoint(name: &str, endpoint: &str) -> Result<(), SettingsRefused> {
    if endpoint.starts_with("https://") {
        return refuse(
            name,
            "begins with https://, and spans are sent without TLS: send them to a collector on this host or network (http://), and let that one go on with TLS",
        );
    }
    match endpoint.strip_prefix("http://") {
        Some(rest) if !rest.is_empty() && endpoint.parse::<tonic::transport::Uri>().is_ok() => Ok(()),
        _ => refuse(name, "has to be written like `http://localhost:4317`"),
    }
}

fn sampler(get: &dyn Fn(&str) -> Option<String>) -> Result<Sampler, SettingsRefused> {
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
            Some(_) => return refuse("OTEL_TRACES_SAMPLER_ARG", "has to be a number from 0.0 to 1.0"),
        },
        _ => {
            return refuse(
                "OTEL_TRACES_SAMPLER",
                format!(
                    "is `{name}`, and has to be always_on, always_off or traceidratio, or one of them with parentbased_ before it"
                ),
            );
        }
    };
    Ok(if by_parent { Sampler::ParentBased(Box::new(own)) } else { own })
}

/// `key=value,other=value`, with values in URL spelling.
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

fn not_followed(variable: &str, problem: impl Into<String>) -> SettingsRefused {
    SettingsRefused { variable: variable.to_owned(), problem: problem.into() }
}

fn refuse<T>(variable: &str, problem: impl Into<String>) -> Result<T, SettingsRefused> {
    Err(not_followed(variable, problem))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4317");

    fn read(variables: &[(&str, &str)]) -> Result<Option<Settings>, SettingsRefused> {
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
        assert_eq!(settings.endpoint, "http://traces:4317");
        assert_eq!(settings.timeout, Duration::from_millis(2500));
        assert_eq!(settings.headers, [("x-tenant".into(), "a b".into()), ("authorization".into(), "Bearer x".into())]);
        assert_eq!(settings.service_name, "from-attributes");
        assert_eq!(settings.attributes.len(), 2);
        let named =
            read(&[ENDPOINT, ("OTEL_SERVICE_NAME", "mine"), ("OTEL_RESOURCE_ATTRIBUTES", "service.name=other")]);
        assert_eq!(named.unwrap().unwrap().service_name, "mine");
        assert_eq!(read(&[ENDPOINT]).unwrap().unwrap().service_name, "belay-test");
    }

    #[test]
    fn what_cannot_be_followed_is_refused_by_its_name() {
        let cases = [
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf", "set it to `grpc`"),
            ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json", "4317"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://collector:4317", "without TLS"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4317", "like `http://localhost:4317`"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://", "like `http://localhost:4317`"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s", "milliseconds"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "0", "above 0"),
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
