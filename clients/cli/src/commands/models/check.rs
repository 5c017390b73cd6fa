//! `belay models check`.

use belay_proto::v1::{
    CheckModelRequest, Model, ModelCheck, ModelUsage, check_model_response::Content, model_check::State,
};
use belay_reasons as reasons;
use serde_json::{Value, json};

use crate::{
    args::Format,
    connect::Models,
    context::Context,
    exit::Exit,
    failure::{Failure, Report},
    next,
    render::{
        json,
        model::{self, id},
    },
};

/// Find out what the servers of models can do
///
/// Asks each server for its list of models, for a call of a tool and for an answer that follows a schema. What is asked costs what the model costs: a
/// few thousand tokens at most, and with --fill-window as many as fill the window.
#[derive(clap::Args, Debug)]
#[command(after_help = "Example:\n  belay models check\n  belay models check coder --fill-window\n\n\
                  Exit codes:\n  0    usable: every check has passed, or only warns\n  1    a check has failed\n  2    used wrongly: there is no such model, or it may not be asked")]
pub(crate) struct Check {
    /// The models; all of them by default
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Also send a prompt that fills most of the window, to notice a server that cuts prompts and says nothing; slow, or dear
    #[arg(long)]
    fill_window: bool,
}

/// The findings about a model.
struct Findings {
    checks: Vec<ModelCheck>,
    usage: ModelUsage,
}

impl Findings {
    fn has_failed(&self) -> bool {
        self.checks.iter().any(|check| check.state() == State::Failed)
    }
}

/// Checks them.
pub(crate) async fn check(context: &Context, verb: Check) -> Result<Exit, Failure> {
    super::ask(context, async |client, _| {
        let known = super::all(client).await?;
        let models = wanted(&known, &verb.names)?;
        let (mut values, mut has_failed): (Vec<Value>, _) = (Vec::new(), false);
        for model in models {
            let findings = one(context, client, model, verb.fill_window).await?;
            has_failed |= findings.has_failed();
            values.push(as_json(model, &findings)?);
        }
        match context.screen.format {
            Format::Text => {}
            Format::Json => context.screen.print_json(&json!({ "models": values }))?,
            Format::Jsonl => {
                for value in &values {
                    context.screen.print_json(value)?;
                }
            }
        }
        Ok(if has_failed { Exit::INTERNAL } else { Exit::OK })
    })
    .await
}

/// The models of these names; without names, those that may be asked.
fn wanted<'a>(known: &'a [Model], names: &[String]) -> Result<Vec<&'a Model>, Failure> {
    if names.is_empty() {
        let asked: Vec<&Model> = known.iter().filter(|model| model.unavailable_reason.is_empty()).collect();
        return match (asked.is_empty(), known.is_empty()) {
            (false, _) => Ok(asked),
            (true, true) => {
                let report = Report::new(reasons::MODEL_NOT_FOUND, "the settings have no models");
                Err(report.next(next::command(&["config", "show"])).into())
            }
            (true, false) => {
                let message = "none of the models may be asked: no server is on this machine, and the settings say `local_only` or `air_gapped`";
                Err(Report::new(reasons::MODEL_NOT_LOCAL, message).next(next::command(&["models", "list"])).into())
            }
        };
    }
    let find = |name: &String| {
        let name = name.strip_prefix("models/").unwrap_or(name);
        known.iter().find(|model| id(model) == name).ok_or_else(|| {
            let report = Report::new(reasons::MODEL_NOT_FOUND, format!("there is no model `{name}`"));
            Failure::from(report.next(next::command(&["models", "list"])))
        })
    };
    names.iter().map(find).collect()
}

/// Checks a model, and shows each finding as it comes.
async fn one(context: &Context, client: &mut Models, model: &Model, fill_window: bool) -> Result<Findings, Failure> {
    let request = CheckModelRequest { name: model.name.clone(), fill_window };
    let mut stream = client.check_model(request).await?.into_inner();
    let is_text = context.screen.format == Format::Text;
    if is_text {
        context.screen.print(&[model::heading(model)])?;
    }
    let mut findings = Findings { checks: Vec::new(), usage: ModelUsage::default() };
    while let Some(message) = stream.message().await? {
        match message.content {
            Some(Content::Check(check)) => {
                if is_text {
                    context.screen.print(&model::check(&check))?;
                }
                findings.checks.push(check);
            }
            Some(Content::Usage(usage)) => findings.usage = usage,
            // Of a newer server.
            None => {}
        }
    }
    if is_text {
        context.screen.print(&[model::usage(&findings.usage)])?;
    }
    Ok(findings)
}

fn as_json(model: &Model, findings: &Findings) -> Result<Value, Failure> {
    let checks = findings.checks.iter().map(json::of).collect::<Result<Vec<_>, _>>()?;
    Ok(json!({ "model": json::of(model)?, "checks": checks, "usage": json::of(&findings.usage)? }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn models() -> Vec<Model> {
        let model = |name: &str, reason: &str| Model {
            name: format!("models/{name}"),
            unavailable_reason: reason.to_owned(),
            ..Model::default()
        };
        vec![model("coder", ""), model("hosted", "MODEL_NOT_LOCAL")]
    }

    fn ids(names: &[&str]) -> Result<Vec<String>, String> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let known = models();
        wanted(&known, &names)
            .map(|models| models.into_iter().map(|model| id(model).to_owned()).collect())
            .map_err(|failure| failure.report().code.clone())
    }

    #[test]
    fn all_that_may_be_asked_are_checked_or_those_that_are_named() {
        assert_eq!(ids(&[]), Ok(vec!["coder".to_owned()]));
        // The server says why it does not ask it.
        assert_eq!(ids(&["hosted", "models/coder"]), Ok(vec!["hosted".to_owned(), "coder".to_owned()]));
        assert_eq!(ids(&["cder"]), Err("MODEL_NOT_FOUND".to_owned()));
        let code = |known: &[Model]| wanted(known, &[]).unwrap_err().report().code.clone();
        assert_eq!((code(&[]).as_str(), code(&models()[1..]).as_str()), ("MODEL_NOT_FOUND", "MODEL_NOT_LOCAL"));
    }
}
