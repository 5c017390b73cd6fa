//! `belay config …`.

use belay_all_in_one::{Config, Origin, Row};
use belay_reasons as reasons;
use serde_json::{Value, json};

use crate::{
    args::{Format, help},
    context::Context,
    exit::Exit,
    failure::{Failure, Report},
    lookup, next,
    render::text::{Line, Style, clean, table},
};

/// Show each setting with its value and where that comes from
///
/// From the settings file (with the line), an environment variable, a flag, what was found on this machine, or the default. Shows what
/// services that start here would get; running services keep the values they started with.
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay config show"))]
pub(crate) struct Show {
    /// Only this setting, or those below it: `services`, `services.executor.steps`
    #[arg(value_name = "KEY")]
    key: Option<String>,
}

/// Reads the settings as a start would.
pub(crate) async fn show(context: &Context, verb: Show) -> Result<Exit, Failure> {
    let source = context.target.config.clone();
    let config = tokio::task::spawn_blocking(move || source.load())
        .await
        .map_err(|error| Failure::internal(format!("the settings could not be read: {error}")))??;
    let mut rows = places(context)?;
    rows.extend(config.rows());
    if let Some(key) = &verb.key {
        let known: Vec<String> = rows.iter().map(|row| row.key.clone()).collect();
        let is_below =
            |row: &Row| row.key == *key || row.key.strip_prefix(key).is_some_and(|rest| rest.starts_with('.'));
        rows.retain(is_below);
        if rows.is_empty() {
            return Err(no_setting(key, &known).into());
        }
        if let ([row], Format::Text) = (&rows[..], context.screen.format)
            && row.key == *key
        {
            // As a script reads it.
            context.screen.print(&[Line::new(&row.value)])?;
            return Ok(Exit::OK);
        }
    }
    match context.screen.format {
        Format::Text => context.screen.print(&lines(&config, &rows))?,
        Format::Json | Format::Jsonl => context.screen.print_json(&as_json(&config, &rows))?,
    }
    Ok(Exit::OK)
}

/// There is no such setting.
fn no_setting(key: &str, known: &[String]) -> Report {
    let near = lookup::similar(key, known).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
    Report::new(reasons::INVALID_USAGE, format!("there is no setting `{}`{near}", clean(key)))
        .next(next::command(&["config", "show"]))
}

/// The places that flags and variables decide, and no file.
fn places(context: &Context) -> Result<Vec<Row>, Failure> {
    let given: Vec<String> = std::env::args().skip(1).collect();
    let is_given = |flag: &str| given.iter().any(|word| word.split('=').next() == Some(flag));
    let origin = |flag: &'static str, variable: Option<&'static str>| match variable {
        _ if is_given(flag) => Origin::Flag(flag),
        Some(name) if std::env::var_os(name).is_some_and(|value| !value.is_empty()) => Origin::Variable(name),
        _ => Origin::Default,
    };
    let target = &context.target;
    let server = target
        .server
        .as_ref()
        .map_or("the holder of the state directory, else this process".to_owned(), ToString::to_string);
    let policy = match crate::commands::doctor::policy_choice() {
        belay_all_in_one::PolicyChoice::File(path) => path.display().to_string(),
        _ => "the built-in one".to_owned(),
    };
    let row = |key: &str, value: String, origin: Origin| Row { key: key.to_owned(), value, origin };
    Ok(vec![
        row("server", server, origin("--server", Some("BELAY_SERVER"))),
        row("state_dir", target.state_dir()?.display().to_string(), origin("--state-dir", Some("BELAY_STATE_DIR"))),
        row("namespace", context.namespace.clone(), origin("--namespace", None)),
        row("policy", policy, origin("--policy", Some("BELAY_POLICY"))),
    ])
}

fn lines(config: &Config, rows: &[Row]) -> Vec<Line> {
    let heading = |text: &str| Line::default().and(Style::Strong, text);
    let file = config.loaded.file.as_deref();
    let mut lines = vec![match file {
        Some(file) => heading("settings").and(Style::Plain, format!("  {}", file.display())),
        None => {
            let places: Vec<_> = config.loaded.looked_in.iter().map(|place| place.display().to_string()).collect();
            heading("settings").and(Style::Dim, format!("  no file: looked for {}", places.join(" and ")))
        }
    }];
    let cells = |row: &Row| {
        let style = if row.origin == Origin::Default { Style::Dim } else { Style::Plain };
        vec![(Style::Plain, row.key.clone()), (style, row.value.clone()), (Style::Dim, row.origin.shown(file))]
    };
    lines.extend(table(&rows.iter().map(cells).collect::<Vec<_>>()));
    let left_out = &config.commands.toolchains.left_out;
    if !left_out.is_empty() {
        lines.push(heading("on your PATH, and not seen by commands"));
        let cells = |(folder, reason): &(std::path::PathBuf, String)| {
            vec![(Style::Plain, folder.display().to_string()), (Style::Plain, reason.clone())]
        };
        lines.extend(table(&left_out.iter().map(cells).collect::<Vec<_>>()));
    }
    lines
}

fn as_json(config: &Config, rows: &[Row]) -> Value {
    let setting = |row: &Row| {
        let mut value = json!({ "key": row.key, "value": row.value });
        let (origin, name) = match row.origin {
            Origin::Default => ("default", None),
            Origin::Found => ("found", None),
            Origin::Line(line) => {
                value["line"] = line.into();
                ("file", None)
            }
            Origin::Variable(name) => ("variable", Some(name)),
            Origin::Flag(name) => ("flag", Some(name)),
        };
        value["origin"] = origin.into();
        if let Some(name) = name {
            value["name"] = name.into();
        }
        value
    };
    let left_out = config.commands.toolchains.left_out.iter();
    json!({
        "file": config.loaded.file,
        "lookedIn": config.loaded.looked_in,
        "settings": rows.iter().map(setting).collect::<Vec<_>>(),
        "notSeen": left_out.map(|(folder, reason)| json!({ "folder": folder, "reason": reason })).collect::<Vec<_>>(),
    })
}
