//! `belay api`.

mod bytes;
mod contract;

use std::io::{self, IsTerminal as _, Read as _};

use belay_all_in_one::json as strict_json;
use belay_reasons as reasons;
use prost::Message as _;
use prost_reflect::{DynamicMessage, MessageDescriptor, MethodDescriptor};
use serde_json::{Value, json};
use tonic::{Request, client::Grpc, codegen::http::uri::PathAndQuery};

use self::{
    bytes::EncodedMessages,
    contract::{
        Field, about_message, about_method, changes, fields, find, find_message, message_name, messages, methods,
        short_name, skeleton,
    },
};
use crate::{
    args::{Format, help},
    connect::{MAX_MESSAGE_BYTES, Session},
    context::Context,
    exit::Exit,
    failure::{Failure, Report},
    lookup, next,
    render::text::{Line, Style, table},
};

/// The value of `--data` that means standard input.
const STDIN: &str = "-";

/// Call a method of the API with a request as JSON, and print the answer as JSON
///
/// The request and the answer are in protobuf's JSON form. Without METHOD, lists all methods; `--describe` says what a method takes and returns.
/// The request is read from standard input, unless that is a terminal or `--data` is given. A method that returns a stream prints one message a line.
#[derive(clap::Args, Debug)]
#[command(after_help = help!(
    "belay api ListExecutions --data '{\"parent\":\"namespaces/default\"}'\n  belay api StartExecution < request.json\n  belay api StartExecution --describe"
))]
pub(crate) struct Api {
    /// The method, such as GetExecution or ExecutorService.GetExecution; with --describe also a message, such as Plan
    #[arg(value_name = "METHOD")]
    method: Option<String>,
    /// The request as JSON; `-` reads it from standard input
    #[arg(long, short = 'd', value_name = "JSON", requires = "method", conflicts_with = "describe")]
    data: Option<String>,
    /// Say what the method does, takes and returns; asks no server
    #[arg(long, requires = "method")]
    describe: bool,
}

/// Calls the method, or describes it.
pub(crate) async fn api(context: &Context, verb: Api) -> Result<Exit, Failure> {
    let Some(name) = verb.method else { return list(context) };
    if verb.describe {
        return describe(context, &name);
    }
    let method = the_method(&name)?;
    let request = request(&method, verb.data)?;
    let Some(session) = Session::running(&context.target).await? else { return Err(no_server().into()) };
    let done = call(context, &session, &method, request).await;
    session.close().await;
    done
}

/// The only method that the name may mean.
fn the_method(name: &str) -> Result<MethodDescriptor, Failure> {
    let mut found = find(name);
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => Err(unknown(name, "method").into()),
        _ => {
            let names: Vec<_> = found.iter().map(|method| format!("`{}`", short_name(method))).collect();
            Err(Report::invalid(
                "METHOD",
                format!("several services have a method `{name}`: write {}", names.join(" or ")),
            )
            .into())
        }
    }
}

fn unknown(name: &str, what: &str) -> Report {
    let report = Report::invalid("METHOD", format!("there is no {what} `{name}`"));
    let known: Vec<_> = methods().iter().flat_map(|method| [method.name().to_owned(), short_name(method)]).collect();
    match lookup::similar(name, &known).and_then(|known| find(known).into_iter().next()) {
        Some(method) => report.next(next::command(&["api", &short_name(&method), "--describe"])),
        None => report.next(next::command(&["api"])),
    }
}

fn no_server() -> Report {
    let message = "no server runs with this state directory, and the API is what a server answers";
    let report = Report::new(reasons::SERVER_UNREACHABLE, message);
    report.detail("start one, or name one with --server").next(next::command(&["serve"]))
}

/// The request that was given.
fn request(method: &MethodDescriptor, data: Option<String>) -> Result<DynamicMessage, Failure> {
    let (field, text) = match data {
        Some(data) if data != STDIN => ("--data", data.into_bytes()),
        None if io::stdin().is_terminal() => ("--data", b"{}".to_vec()),
        _ => ("standard input", read_stdin()?),
    };
    let message = method.input();
    message_of(&message, &text).map_err(|refused| {
        let mut report = Report::invalid(field, format!("{field} {refused}"));
        if text.iter().all(u8::is_ascii_whitespace) {
            report = report.detail("a request without fields is written {}");
        }
        report.next(next::command(&["api", &short_name(method), "--describe"])).into()
    })
}

fn read_stdin() -> Result<Vec<u8>, Failure> {
    let mut text = Vec::new();
    let limit = u64::try_from(MAX_MESSAGE_BYTES).unwrap_or(u64::MAX);
    let read = io::stdin().lock().take(limit + 1).read_to_end(&mut text);
    let read =
        read.map_err(|error| Report::invalid("standard input", format!("standard input cannot be read: {error}")))?;
    if read > MAX_MESSAGE_BYTES {
        let message =
            format!("standard input has more than {MAX_MESSAGE_BYTES} bytes, and that is the limit of a request");
        return Err(Report::invalid("standard input", message).into());
    }
    Ok(text)
}

/// The message that JSON stands for. The error, which follows the name of the JSON, names the field where there is one.
fn message_of(message: &MessageDescriptor, text: &[u8]) -> Result<DynamicMessage, String> {
    let value = strict_json::read_bytes(text).map_err(|refused| refused.to_string())?;
    let mut track = serde_path_to_error::Track::new();
    let deserializer = serde_path_to_error::Deserializer::new(value, &mut track);
    let what = message.name();
    DynamicMessage::deserialize(message.clone(), deserializer).map_err(|error| match track.path().to_string() {
        path if path == "." => format!("is not a {what}: {error}"),
        path => format!("is not a {what}: {path}: {error}"),
    })
}

async fn call(
    context: &Context,
    session: &Session,
    method: &MethodDescriptor,
    request: DynamicMessage,
) -> Result<Exit, Failure> {
    let wire = match contract::is_of_gate(method) {
        true => session.to_gate().wire().await?,
        false => session.wire(),
    };
    let mut client = Grpc::new(wire).max_decoding_message_size(MAX_MESSAGE_BYTES);
    client.ready().await.map_err(|error| Failure::internal(format!("the connection is not ready: {error}")))?;
    let path = PathAndQuery::try_from(contract::path(method))
        .map_err(|error| Failure::internal(format!("the method has no path: {error}")))?;
    let request = Request::new(request.encode_to_vec().into());
    let mut answers = client.server_streaming(request, path, EncodedMessages).await?.into_inner();
    while let Some(answer) = answers.message().await? {
        let answer = DynamicMessage::decode(method.output(), answer)
            .map_err(|error| Failure::internal(format!("the server's answer cannot be read: {error}")))?;
        let value = serde_json::to_value(&answer)
            .map_err(|error| Failure::internal(format!("the server's answer cannot be written as JSON: {error}")))?;
        match method.is_server_streaming() {
            true => context.screen.print_json_line(&value)?,
            false => context.screen.print_json_indented(&value)?,
        }
    }
    Ok(Exit::OK)
}

fn list(context: &Context) -> Result<Exit, Failure> {
    let methods = methods();
    match context.screen.format {
        Format::Text => {
            let cells = |method: &MethodDescriptor| {
                vec![(Style::Plain, short_name(method)), (Style::Dim, first_sentence(&about_method(method)))]
            };
            context.screen.print(&table(&methods.iter().map(cells).collect::<Vec<_>>()))?;
        }
        Format::Json => {
            let methods: Vec<_> = methods.iter().map(method_json).collect();
            let messages: Vec<_> = messages().iter().map(message_json).collect();
            context.screen.print_json(&json!({ "methods": methods, "messages": messages }))?;
        }
        Format::Jsonl => methods.iter().try_for_each(|method| context.screen.print_json(&method_json(method)))?,
    }
    Ok(Exit::OK)
}

fn first_sentence(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    line.split_once(". ").map_or(line.trim_end_matches('.'), |(first, _)| first).to_owned()
}

fn describe(context: &Context, name: &str) -> Result<Exit, Failure> {
    let (lines, value) = match (find(name).as_slice(), find_message(name)) {
        ([], None) => return Err(unknown(name, "method or message").into()),
        ([], Some(message)) => (message_lines(&message), message_json(&message)),
        _ => {
            let method = the_method(name)?;
            let mut value = method_json(&method);
            value["messages"] = [method.input(), method.output()].iter().map(message_json).collect();
            (method_lines(&method), value)
        }
    };
    match context.screen.format {
        Format::Text => context.screen.print(&lines)?,
        Format::Json | Format::Jsonl => context.screen.print_json(&value)?,
    }
    Ok(Exit::OK)
}

fn method_lines(method: &MethodDescriptor) -> Vec<Line> {
    let mut lines = vec![Line::default().and(Style::Strong, short_name(method))];
    lines.extend(about_method(method).lines().map(|line| Line::new("  ").and(Style::Plain, line).hanging(2)));
    let what = match changes(method) {
        true => "may change something",
        false => "changes nothing",
    };
    lines.push(Line::new("  ").and(Style::Dim, what));
    lines.push(Line::new("  ").and(Style::Dim, format!("at least {}", skeleton(&method.input()))).hanging(11));
    lines.push(Line::default().and(Style::Plain, "takes ").and(Style::Strong, method.input().name()));
    lines.extend(field_lines(&fields(&method.input())));
    let returns = if method.is_server_streaming() { "returns a stream of " } else { "returns " };
    lines.push(Line::default().and(Style::Plain, returns).and(Style::Strong, method.output().name()));
    lines.extend(field_lines(&fields(&method.output())));
    lines
}

fn message_lines(message: &MessageDescriptor) -> Vec<Line> {
    let mut lines = vec![Line::default().and(Style::Strong, message.name())];
    lines.extend(about_message(message).lines().map(|line| Line::new("  ").and(Style::Plain, line).hanging(2)));
    lines.extend(field_lines(&fields(message)));
    lines
}

fn field_lines(fields: &[Field]) -> Vec<Line> {
    let mut lines = Vec::new();
    for field in fields {
        let mut notes = vec![field.kind.clone()];
        notes.extend(field.is_required.then(|| "required".to_owned()));
        notes.extend((!field.one_of.is_empty()).then(|| format!("one of `{}`", field.one_of)));
        lines.push(
            Line::new("  ")
                .and(Style::Strong, &field.name)
                .and(Style::Dim, format!("  {}", notes.join(", ")))
                .hanging(6),
        );
        lines.extend(field.about.lines().map(|line| Line::new("      ").and(Style::Plain, line).hanging(6)));
    }
    lines
}

fn method_json(method: &MethodDescriptor) -> Value {
    json!({
        "method": short_name(method),
        "path": contract::path(method),
        "description": about_method(method),
        "changes": changes(method),
        "streams": method.is_server_streaming(),
        "skeleton": skeleton(&method.input()),
        "request": message_name(&method.input()),
        "answer": message_name(&method.output()),
    })
}

fn message_json(message: &MessageDescriptor) -> Value {
    let field = |field: Field| {
        json!({
            "name": field.name,
            "type": field.kind,
            "required": field.is_required,
            "oneOf": field.one_of,
            "description": field.about,
        })
    };
    json!({
        "name": message_name(message),
        "description": about_message(message),
        "fields": fields(message).into_iter().map(field).collect::<Vec<_>>(),
    })
}
