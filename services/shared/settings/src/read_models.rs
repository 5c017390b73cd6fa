//! Reads the section `models`.

use std::time::Duration;

use belay_model::{Api, BaseUrl, Model, Price, TimeLimits, ToolCalls};
use belay_network::{Credential, HostOrAddress, is_profile_name};
use belay_yaml::{Node, Reader, Value, nearest, seconds, shown};

use crate::{
    ValueWithOrigin,
    read_credentials::ReadCredentials,
    read_values::{filled_text, number},
};

const MODEL: &str = "api base_url model window max_output tool_calls price credential limits";
const PRICE: &str = "input cached_input output";
const LIMITS: &str = "first_byte between_bytes answer";

/// The most models.
const MAX_MODELS: usize = 100;
/// The longest name of a model at its server.
const MAX_SERVED_NAME: usize = 256;
/// The smallest window: below it, a loop's fixed part leaves no place for what it is about.
const MIN_WINDOW: u64 = 2048;
/// The largest window, in tokens.
const MAX_WINDOW: u64 = 100_000_000;
/// The default of `max_output`, and the share of the window that it is at most: an unset limit that takes the whole window leaves none for the prompt.
const MAX_OUTPUT: u64 = 4096;
const SHARE_OF_OUTPUT: u64 = 4;
/// The highest price of a million tokens, in dollars.
const MAX_PRICE: f64 = 100_000.0;
/// The longest time limit, in seconds: a day.
const MAX_LIMIT: u64 = 86_400;

/// Reads all models. An invalid one adds violations and is left out.
pub(crate) fn models(reader: &mut Reader, node: &Node, field: &str) -> Vec<ValueWithOrigin<Model>> {
    let (mut models, mut count) = (Vec::new(), 0);
    reader.map(node, field, |reader, name, field, node| {
        count += 1;
        let line = reader.line_of(field);
        models.extend(model(reader, node, field, name).map(|model| ValueWithOrigin::on_line(model, line)));
        Ok(())
    });
    if count > MAX_MODELS {
        reader.refuse(field, reader.line_of(field), format!("has {count} models, but the limit is {MAX_MODELS}"));
    }
    models
}

/// The parts of a model, as far as they could be read.
#[derive(Default)]
struct Draft {
    api: Option<Api>,
    base_url: Option<BaseUrl>,
    model: Option<String>,
    window: Option<u64>,
    max_output: Option<u64>,
    tool_calls: Option<ToolCalls>,
    price: Option<Price>,
    credential: Option<String>,
}

fn model(reader: &mut Reader, node: &Node, field: &str, name: &str) -> Option<Model> {
    let before = reader.violations().len();
    if !is_profile_name(name) {
        let rule = "is not a model's name: it has 1 to 64 letters, digits, `-`, `_` and `.`, beginning with a letter or a digit";
        reader.refuse(field, node.line, rule);
    }
    let (mut draft, mut limits) = (Draft::default(), TimeLimits::DEFAULT);
    reader.map(node, field, |reader, key, field, node| {
        match key {
            "api" => draft.api = reader.one_of(node, field, &Api::WORDS),
            "base_url" => match reader.text(node, field).map(|url| BaseUrl::parse(&url)) {
                Some(Ok(url)) => draft.base_url = Some(url),
                Some(Err(problem)) => reader.refuse(field, node.line, problem),
                None => {}
            },
            "model" => {
                draft.model = filled_text(reader, node, field);
                if draft
                    .model
                    .as_ref()
                    .is_some_and(|name| name.len() > MAX_SERVED_NAME || name.contains(char::is_control))
                {
                    reader.refuse(field, node.line, "must be the model's name at its server, of at most 256 bytes");
                }
            }
            "window" => draft.window = number(reader, node, field, MIN_WINDOW, MAX_WINDOW),
            "max_output" => draft.max_output = number(reader, node, field, 1, MAX_WINDOW),
            "tool_calls" => draft.tool_calls = reader.one_of(node, field, &ToolCalls::WORDS),
            "price" => draft.price = price(reader, node, field),
            "credential" => draft.credential = filled_text(reader, node, field),
            "limits" => self::limits(reader, node, field, &mut limits),
            _ => return Err(MODEL),
        }
        Ok(())
    });
    if !matches!(node.value, Value::Map(_)) {
        return None;
    }
    let required = [
        ("api", "chat (Chat Completions, which every local server speaks), responses or messages"),
        ("base_url", "what the paths of the API are added to, such as http://127.0.0.1:11434/v1"),
        ("model", "its name at the server, such as qwen3:8b"),
        ("window", "how many tokens prompt and answer may have together, as the server is set up, such as 32768"),
    ];
    for (key, what) in required {
        if !reader.has_read(&format!("{field}.{key}")) {
            reader.refuse(field, node.line, format!("has no `{key}`: add it, {what}"));
        }
    }
    let max_output = match (draft.window, draft.max_output) {
        (Some(window), Some(most)) if most > window / SHARE_OF_OUTPUT => {
            let message = format!(
                "must be at most {}, a quarter of the window: the rest is for the prompt",
                window / SHARE_OF_OUTPUT
            );
            let field = format!("{field}.max_output");
            reader.refuse(&field, reader.line_of(&field), message);
            None
        }
        (Some(window), None) => Some(MAX_OUTPUT.min(window / SHARE_OF_OUTPUT)),
        (_, most) => most,
    };
    if limits.answer < limits.first_byte.max(limits.between_bytes) {
        let field = format!("{field}.limits.answer");
        reader.refuse(&field, reader.line_of(&field), "is less than the other limits, which are within it");
    }
    if reader.violations().len() > before {
        return None;
    }
    Some(Model {
        name: name.to_owned(),
        api: draft.api?,
        base_url: draft.base_url?,
        model: draft.model?,
        window: draft.window?,
        max_output: max_output?,
        tool_calls: draft.tool_calls.unwrap_or(ToolCalls::Native),
        price: draft.price,
        limits,
        credential: draft.credential,
    })
}

fn price(reader: &mut Reader, node: &Node, field: &str) -> Option<Price> {
    let before = reader.violations().len();
    let (mut input, mut cached_input, mut output) = (None, None, None);
    reader.map(node, field, |reader, key, field, node| {
        let to = match key {
            "input" => &mut input,
            "cached_input" => &mut cached_input,
            "output" => &mut output,
            _ => return Err(PRICE),
        };
        *to = dollars(reader, node, field);
        Ok(())
    });
    for (key, is_there) in [("input", input.is_some()), ("output", output.is_some())] {
        if !is_there && !reader.has_read(&format!("{field}.{key}")) {
            reader.refuse(
                field,
                node.line,
                format!("has no `{key}`: add the dollars for a million tokens, such as 0.15"),
            );
        }
    }
    let (input, output) = (input?, output?);
    (reader.violations().len() == before).then_some(Price {
        input,
        cached_input: cached_input.unwrap_or(input),
        output,
    })
}

/// Reads dollars, as millionths.
fn dollars(reader: &mut Reader, node: &Node, field: &str) -> Option<u64> {
    let number = if let Value::Number(number) = &node.value { number.as_f64() } else { None };
    match number.filter(|dollars| (0.0..=MAX_PRICE).contains(dollars)) {
        Some(dollars) => Some((dollars * 1e6).round() as u64),
        None => {
            reader.refuse(
                field,
                node.line,
                "must be the US dollars for a million tokens, from 0 to 100000, such as 0.15",
            );
            None
        }
    }
}

fn limits(reader: &mut Reader, node: &Node, field: &str, to: &mut TimeLimits) {
    reader.map(node, field, |reader, key, field, node| {
        let to = match key {
            "first_byte" => &mut to.first_byte,
            "between_bytes" => &mut to.between_bytes,
            "answer" => &mut to.answer,
            _ => return Err(LIMITS),
        };
        let text = if let Value::Text(text) = &node.value { seconds(text) } else { None };
        match text.filter(|seconds| (1..=MAX_LIMIT).contains(seconds)) {
            Some(seconds) => *to = Duration::from_secs(seconds),
            None => {
                reader.refuse(field, node.line, "must be a whole number with a unit, such as 90s, and at most 24h");
            }
        }
        Ok(())
    });
}

/// Refuses models whose credential does not exist, or may not go to their server.
pub(crate) fn credentials_of_models(
    reader: &mut Reader,
    models: &[ValueWithOrigin<Model>],
    credentials: &ReadCredentials,
) {
    for model in models.iter().map(|model| &model.value) {
        let Some(name) = model.credential.as_deref().filter(|name| !credentials.is_refused(name)) else { continue };
        let known = credentials.of_rules();
        let problem = match known.iter().find(|credential| credential.name == *name) {
            None => {
                let names = known.iter().map(|credential| credential.name.as_str());
                let hint = nearest(name, names).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
                Some(format!("`{}` is not in `credentials`: add it there{hint}", shown(name)))
            }
            Some(credential) => problem_of(credential, &model.base_url),
        };
        if let Some(problem) = problem {
            let field = format!("models.{}.credential", model.name);
            reader.refuse(&field, reader.line_of(&field), problem);
        }
    }
}

/// The reason why a credential cannot go to a server.
fn problem_of(credential: &Credential, url: &BaseUrl) -> Option<String> {
    let name = &credential.name;
    let HostOrAddress::Name(host) = &url.host else {
        return Some(format!(
            "goes to hosts by their names, and the server has an address: write its name in `base_url` and in `credentials.{name}.hosts`, such as localhost"
        ));
    };
    let is_for = credential
        .hosts
        .iter()
        .any(|binding| binding.protocol == url.protocol && binding.port == url.port && binding.host.matches(host));
    if !is_for {
        let server = format!("{}://{host}:{}", url.protocol.word(), url.port);
        return Some(format!("`{name}` may not go to {server}: add it to `credentials.{name}.hosts`"));
    }
    if !credential.methods.is_empty()
        && !["GET", "POST"].iter().all(|method| credential.methods.iter().any(|known| known == method))
    {
        return Some(format!(
            "`{name}` must be for GET and POST: add them to `credentials.{name}.methods`, or remove that"
        ));
    }
    (!credential.paths.is_empty()).then(|| {
        format!(
            "`{name}` is for some paths only: remove `credentials.{name}.paths`, or make a credential for the model"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{File, Origin};

    const GOOD: &str = "
models:
  coder:
    api: chat
    base_url: http://127.0.0.1:11434/v1
    model: qwen3:8b
    window: 32768
  hosted:
    api: messages
    base_url: https://api.example.com/v1
    model: large-1
    window: 200000
    max_output: 16000
    tool_calls: native
    price: {input: 3, cached_input: 0.3, output: 15.50}
    credential: example
    limits: {first_byte: 90s, answer: 1h}
credentials:
  example: {file: /etc/belay/example.key, header: x-api-key, hosts: [https://api.example.com]}
";

    fn refused(text: &str) -> String {
        let violations = File::parse(text, None).unwrap_err();
        violations.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_model_has_its_values_and_defaults() {
        let settings = File::parse(GOOD, None).unwrap();
        let [coder, hosted] = &settings.models.configured[..] else { panic!("{settings:?}") };
        assert_eq!((coder.value.name.as_str(), &coder.origin), ("coder", &Origin::Line(3)));
        assert_eq!((coder.value.max_output, coder.value.tool_calls), (4096, ToolCalls::Native));
        assert_eq!((coder.value.price, coder.value.limits), (None, TimeLimits::DEFAULT));
        let price = Price { input: 3_000_000, cached_input: 300_000, output: 15_500_000 };
        assert_eq!((hosted.value.price, hosted.value.max_output), (Some(price), 16_000));
        assert_eq!((hosted.value.limits.first_byte.as_secs(), hosted.value.limits.answer.as_secs()), (90, 3600));
        assert_eq!(hosted.value.credential.as_deref(), Some("example"));
        let small = GOOD.replacen("window: 32768", "window: 4096", 1);
        assert_eq!(
            File::parse(&small, None).unwrap().models.configured[0].value.max_output,
            1024,
            "a quarter of the window"
        );
        let cached = GOOD.replacen(" cached_input: 0.3,", "", 1);
        assert_eq!(
            File::parse(&cached, None).unwrap().models.configured[1].value.price.unwrap().cached_input,
            3_000_000
        );
    }

    #[test]
    fn what_is_wrong_is_refused_by_its_field() {
        let cases = [
            ("api: chat", "api: completions", "models.coder.api"),
            ("    api: chat\n", "", "models.coder: has no `api`: add it, chat"),
            ("    window: 32768\n", "", "models.coder: has no `window`"),
            ("window: 32768", "window: 1000", "models.coder.window: must be a whole number between 2048"),
            ("window: 200000", "window: 32768", "models.hosted.max_output: must be at most 8192, a quarter"),
            ("http://127.0.0.1:11434/v1", "127.0.0.1:11434", "models.coder.base_url: must begin with https://"),
            ("https://api.example.com/v1", "https://sk-secret@api.example.com", "name a credential with `credential`"),
            ("qwen3:8b", "''", "models.coder.model: is empty"),
            ("tool_calls: native", "tool_calls: xml", "models.hosted.tool_calls"),
            ("input: 3,", "input: free,", "models.hosted.price.input: must be the US dollars"),
            ("input: 3, ", "", "models.hosted.price: has no `input`"),
            (
                "first_byte: 90s",
                "first_byte: 90",
                "models.hosted.limits.first_byte: must be a whole number with a unit",
            ),
            ("answer: 1h", "answer: 30s", "models.hosted.limits.answer: is less than the other limits"),
            ("limits: {", "retries: 3\n    limits: {", "retries"),
            ("  coder:", "  co/der:", "is not a model's name"),
            (
                "credential: example",
                "credential: exampel",
                "`exampel` is not in `credentials`: add it there; did you mean `example`?",
            ),
            (
                "https://api.example.com/v1",
                "https://api.example.org/v1",
                "may not go to https://api.example.org:443: add it to `credentials.example.hosts`",
            ),
            ("https://api.example.com/v1", "http://api.example.com/v1", "may not go to http://api.example.com:80"),
            ("https://api.example.com/v1", "https://192.0.2.1/v1", "write its name in `base_url`"),
            ("header: x-api-key,", "header: x-api-key, methods: [POST],", "must be for GET and POST"),
            ("header: x-api-key,", "header: x-api-key, paths: [/v1/*],", "is for some paths only"),
        ];
        for (right, wrong, says) in cases {
            let text = refused(&GOOD.replacen(right, wrong, 1));
            assert!(text.contains(says), "{wrong}: {text}");
            assert!(!text.contains("sk-secret"), "{text}");
        }
    }

    #[test]
    fn an_invalid_credential_is_reported_once() {
        let text = refused(&GOOD.replacen("header: x-api-key", "header: host", 1));
        assert_eq!(text.matches("credential").count(), text.matches("credentials.example").count() + 1, "{text}");
        assert!(!text.contains("models.hosted"), "{text}");
    }
}
