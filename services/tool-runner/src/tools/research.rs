//! `research`: answers a question with cited findings, from the workspace, from folders with documents that the operator has named, and from the web.
//!
//! A finding is an extract with its source. What was looked at and left out is said. An answer in words, made of the findings by a model, would be a member of `content.result` beside them.

mod depth;
mod findings;
mod found;
mod index;
mod left_out;
mod masked;
mod question;
mod roots;
mod secret_files;
mod walk;
mod web;
mod words;
mod workspace;

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use belay_network::Profile;
use belay_policy::ToolKind;
use belay_redaction::Redactor;
use belay_settings::{ConfigError, LoadedSettings};
use belay_sqlite::{Lane, Threads};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use self::{
    depth::{Bounds, Depth},
    found::Found,
    left_out::{LeftOut, Place, Reason},
    question::Question,
    roots::Roots,
    walk::Reading,
};
use super::{
    files::{Work, in_view_until, invalid, path, read_arguments, stopped},
    http::{HttpHost, HttpUrl, STOP_GRACE, Session},
    intent_on_path,
};
use crate::{
    Annotations, CallIntent, CommandSettings, Invocation, NetworkProblem, PlannedProblem, Recovery, Tool, ToolFailure,
    ToolResult, ToolSpec, Touches,
};

/// The most calls that index a workspace, or pages, at a time: each does so in memory.
const WORKSPACES: usize = 4;

/// The tool.
#[derive(Clone)]
pub struct Research {
    host: HttpHost,
    roots: Arc<Roots>,
    web: Option<Arc<Endpoint>>,
    workspaces: Arc<Semaphore>,
    /// Where pages are looked through.
    pages: Lane,
    /// Knows what is neither indexed nor cited.
    redactor: Redactor,
}

/// The search endpoint of the settings.
struct Endpoint {
    url: HttpUrl,
    /// The network profile of calls that ask it, unless their step names another.
    profile: String,
}

impl Research {
    /// Searches what the settings name.
    pub(super) fn new(host: HttpHost, commands: &CommandSettings) -> Self {
        let settings = commands.research();
        let roots =
            Roots::new(settings.roots.iter().map(|root| &root.value), commands.research_in(), commands.redactor());
        // A URL that is none is refused before, by [`Self::check_endpoint`].
        let endpoint = settings.web.as_ref().and_then(|web| {
            let url = HttpUrl::parse(&web.value.url).ok()?;
            Some(Arc::new(Endpoint { url, profile: web.value.profile.clone() }))
        });
        Self {
            host,
            roots: Arc::new(roots),
            web: endpoint,
            workspaces: Arc::new(Semaphore::new(WORKSPACES)),
            pages: Lane::new(Threads::Real, WORKSPACES),
            redactor: commands.redactor().clone(),
        }
    }

    /// Refuses a search endpoint that cannot be asked for, or that its network profile does not allow.
    pub(super) fn check_endpoint(loaded: &LoadedSettings) -> Result<(), ConfigError> {
        let Some(web) = &loaded.settings.research.web else { return Ok(()) };
        let url = HttpUrl::parse(&web.value.url).map_err(|problem| loaded.refuse("research.web.url", problem))?;
        let profile = loaded.settings.network.profiles.find(&web.value.profile);
        match profile.and_then(|profile| url.refused_by(profile)) {
            Some(why) => Err(loaded.refuse("research.web.url", format!("is not allowed: {why}"))),
            None => Ok(()),
        }
    }
}

#[derive(Deserialize)]
struct Arguments {
    query: String,
    #[serde(default = "documentation")]
    sources: Vec<Source>,
    #[serde(default)]
    depth: Depth,
    path: Option<String>,
}

/// Where a call looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Source {
    Web,
    Documentation,
}

fn documentation() -> Vec<Source> {
    vec![Source::Documentation]
}

/// Whether a call with these arguments asks for a source: `word` is its name. Templates may become either.
fn may_ask(arguments: &Value, word: &str) -> bool {
    match &arguments["sources"] {
        Value::Null => word == "documentation",
        Value::Array(sources) => {
            let is_template = |source: &str| source.contains("${");
            sources.iter().any(|source| source.as_str().is_none_or(|source| source == word || is_template(source)))
        }
        _ => true,
    }
}

impl Tool for Research {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "research",
            aliases: &["RESEARCH"],
            description: "Answers a question with cited findings: extracts of the text files of the workspace and of the operator's folders with documents \
                          (`documentation`, offline), and of web pages that a search endpoint finds (`web`). Says what was left out.",
            parameters: r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "additionalProperties": false,
  "required": ["query"],
  "properties": {
    "query": {
      "type": "string",
      "minLength": 1,
      "maxLength": 20000,
      "description": "The question, or words to look for. Names of code are found by their parts.",
      "examples": ["how is a lost call recovered"]
    },
    "sources": {
      "type": "array",
      "minItems": 1,
      "uniqueItems": true,
      "items": {"enum": ["web", "documentation"]},
      "default": ["documentation"],
      "description": "Where to look: `documentation` is the workspace and the operator's folders with documents; `web` needs a search endpoint in the runner's settings.",
      "examples": [["documentation", "web"]]
    },
    "depth": {"enum": ["shallow", "medium", "deep"], "default": "medium", "description": "How much is looked at."},
    "path": {
      "type": "string",
      "format": "workspace-path",
      "default": ".",
      "description": "The directory or file of the workspace that is searched. The operator's folders are searched whatever it is.",
      "examples": ["docs"]
    }
  }
}"#,
            result: r#"{
  "$schema": "https://json-schema.org/draft/2020-12/schema",
  "type": "object",
  "additionalProperties": false,
  "required": ["content"],
  "properties": {
    "content": {
      "type": "object",
      "additionalProperties": false,
      "required": ["result"],
      "description": "What the tool has returned.",
      "properties": {
        "result": {
          "type": "object",
          "additionalProperties": false,
          "required": ["query", "depth", "findings", "left_out", "searched"],
          "description": "The findings, and what was left out.",
          "properties": {
            "query": {"type": "string", "description": "The question."},
            "depth": {"enum": ["shallow", "medium", "deep"], "description": "How much was looked at."},
            "findings": {
              "type": "array",
              "description": "The findings, the best first.",
              "items": {
                "type": "object",
                "additionalProperties": false,
                "required": ["source", "digest", "extract", "matched", "score"],
                "properties": {
                  "source": {"enum": ["web", "documentation"]},
                  "root": {"type": "string", "description": "The name of the operator's folder with the file; not there for the workspace."},
                  "path": {"type": "string", "description": "The file, relative to the folder or the workspace; a name that is not UTF-8 is `hex:` and the digits of its bytes."},
                  "url": {"type": "string", "description": "The page."},
                  "title": {"type": "string", "description": "Its title."},
                  "lines": {
                    "type": "object",
                    "additionalProperties": false,
                    "required": ["start", "end"],
                    "properties": {"start": {"type": "integer"}, "end": {"type": "integer"}},
                    "description": "The lines of the extract, from 1: of the file, or of the page's text. Not there for a page that was not read."
                  },
                  "digest": {"type": "string", "description": "`sha256:` and the digest of the file, or of the page's text; of a page that was not read, that of the extract."},
                  "extract": {"type": "string", "description": "What stands there."},
                  "matched": {"enum": ["phrase", "all_words", "any_word", "beginnings", "search"], "description": "The strictest form of the question that has found it; `search` is the search endpoint."},
                  "score": {"type": "number", "description": "The order of the findings; it says nothing beyond this answer."}
                }
              }
            },
            "left_out": {
              "type": "array",
              "description": "What was not looked at, and why.",
              "items": {
                "type": "object",
                "additionalProperties": false,
                "required": ["source", "reason", "message"],
                "properties": {
                  "source": {"enum": ["web", "documentation"]},
                  "root": {"type": "string", "description": "The name of the operator's folder; not there for the workspace."},
                  "reason": {"type": "string", "description": "The reason, for programs."},
                  "message": {"type": "string", "description": "The reason in words, and what to do."},
                  "count": {"type": "integer", "description": "How many; not there where they were not counted."},
                  "example": {"type": "string", "description": "One of them."}
                }
              }
            },
            "searched": {
              "type": "object",
              "additionalProperties": false,
              "required": ["files", "bytes", "results", "pages"],
              "description": "What was looked at.",
              "properties": {
                "files": {"type": "integer", "description": "Files of the workspace and the operator's folders."},
                "bytes": {"type": "integer", "description": "Their bytes."},
                "results": {"type": "integer", "description": "Results of the search endpoint."},
                "pages": {"type": "integer", "description": "Pages that were read."}
              }
            }
          }
        }
      }
    }
  }
}"#,
            recovery: Recovery::ReadOnly,
            touches: Touches::Reads,
            kind: ToolKind::FileRead,
            default_timeout: Duration::from_secs(120),
            annotations: Annotations { title: "Research", destructive: false, idempotent: true, open_world: true },
        }
    }

    fn intent(&self, arguments: &Value) -> CallIntent {
        if may_ask(arguments, "documentation") { intent_on_path(arguments) } else { CallIntent::default() }
    }

    fn check_planned(&self, arguments: &Value) -> Vec<PlannedProblem> {
        let is_refused = self.web.is_none() && !may_ask(arguments, "documentation");
        let problem = PlannedProblem { pointer: "/sources".to_owned(), message: NO_ENDPOINT.to_owned(), refused: true };
        is_refused.then_some(problem).into_iter().collect()
    }

    fn network(&self, asked: Option<&str>) -> Result<Option<Arc<Profile>>, NetworkProblem> {
        asked.map_or(Ok(None), |asked| self.host.network(Some(asked)))
    }

    /// Only a call that asks for the web has a network: that of its step, or that of the settings.
    fn network_of(&self, arguments: &Value, asked: Option<&str>) -> Result<Option<Arc<Profile>>, NetworkProblem> {
        if !may_ask(arguments, "web") {
            return if asked.is_some() { Err(NetworkProblem::NoCommand) } else { Ok(None) };
        }
        let Some(web) = &self.web else { return Ok(None) };
        match self.host.network(asked.or(Some(&web.profile))) {
            // The answer says that the web was left out.
            Err(NetworkProblem::AirGapped { .. }) if may_ask(arguments, "documentation") => Ok(None),
            found => found,
        }
    }

    // What is asked of the web leaves this machine: its end has a row.
    fn recovery_of(&self, arguments: &str) -> Option<Recovery> {
        let arguments: Value = serde_json::from_str(arguments).ok()?;
        (self.web.is_some() && may_ask(&arguments, "web")).then_some(Recovery::Idempotent)
    }

    fn stop_grace(&self) -> Duration {
        STOP_GRACE
    }

    fn call(&self, invocation: Invocation) -> Work {
        let this = self.clone();
        Box::pin(async move {
            let arguments: Arguments = read_arguments(invocation.arguments.clone())?;
            this.answer(arguments, invocation).await
        })
    }
}

/// The problem of a call that asks for the web alone, where there is no search endpoint.
const NO_ENDPOINT: &str = "`web` needs a search endpoint, and the runner's settings have none: ask for `documentation`, or have the operator set `research.web`";

impl Research {
    async fn answer(&self, arguments: Arguments, invocation: Invocation) -> ToolResult {
        let Arguments { query, sources, depth, path: top } = arguments;
        let question = Arc::new(Question::new(&query));
        if question.text.is_empty() {
            return Err(invalid("arguments/query: is empty: write a question, or words to look for"));
        }
        let (in_files, in_web) = (sources.contains(&Source::Documentation), sources.contains(&Source::Web));
        let mut found = Found::default();
        let web = self.web.as_ref().filter(|_| in_web && invocation.network.is_some());
        if in_web && web.is_none() {
            if !in_files {
                // Without a network, a call with an endpoint is refused before.
                return Err(invalid(format!("arguments/sources: {NO_ENDPOINT}")));
            }
            let reason = if self.web.is_none() { Reason::NoEndpoint } else { Reason::AirGapped };
            found.left_out.say(&Place::Web, reason);
        }
        if in_files && !question.has_words() {
            if web.is_none() {
                return Err(invalid("arguments/query: has no letter or digit to look for: write words"));
            }
            found.left_out.say(&Place::Workspace, Reason::NoWords);
        }
        let top = path("path", top.as_deref().unwrap_or("."))?;
        let bounds = depth.bounds(invocation.limit);
        let in_files = in_files && question.has_words();
        let (in_documents, in_pages) = tokio::join!(
            async {
                if in_files { self.documents(top, &question, bounds, &invocation).await } else { Ok(Found::default()) }
            },
            async {
                match web {
                    Some(web) => self.pages(web, &question, bounds, &invocation).await,
                    None => (Found::default(), Ok(())),
                }
            }
        );
        found.append(in_documents?);
        let (in_pages, ended) = in_pages;
        found.append(in_pages);
        if let Err(failure) = ended {
            if !in_files || failure.class == belay_proto::v1::ErrorClass::Cancelled {
                return Err(failure);
            }
            found.left_out.say_why(&Place::Web, Reason::SearchFailed, failure.message);
        }
        Ok(result(&question, depth, found, bounds.findings))
    }

    /// Searches the workspace and the operator's folders, until the time for reading is over.
    async fn documents(
        &self,
        top: belay_workspace::RelPath,
        question: &Arc<Question>,
        bounds: Bounds,
        invocation: &Invocation,
    ) -> Result<Found, ToolFailure> {
        let mut stop = invocation.stop.clone();
        let (guard, stopped_by) = super::files::StopOnDrop::new();
        let reading = Reading::new(stopped_by);
        let work = async {
            let (of_workspace, of_roots) = tokio::join!(
                async {
                    let Ok(_slot) = tokio::time::timeout(bounds.reading, self.workspaces.acquire()).await else {
                        let mut found = Found::default();
                        found.left_out.say(&Place::Workspace, Reason::TimeLimit);
                        return Ok(found);
                    };
                    let (question, reading) = (Arc::clone(question), reading.clone());
                    let (may_read, redactor) = (invocation.may_read.clone(), self.redactor.clone());
                    let search = move |view: &mut dyn crate::View| {
                        workspace::search(view, &top, (&question, &bounds), (&may_read, &redactor), &reading)
                    };
                    in_view_until(invocation.view.as_ref(), search).await
                },
                self.roots.search(question, bounds, &reading)
            );
            let mut found = of_workspace?;
            found.append(of_roots?);
            Ok(found)
        };
        let timer = async {
            tokio::time::sleep(bounds.reading).await;
            reading.is_late_now();
            std::future::pending::<()>().await;
        };
        let ended = tokio::select! {
            ended = work => ended,
            () = stop.requested() => Err(stopped()),
            () = timer => Err(stopped()),
        };
        drop(guard);
        ended
    }

    /// Searches the web.
    async fn pages(
        &self,
        web: &Endpoint,
        question: &Arc<Question>,
        bounds: Bounds,
        invocation: &Invocation,
    ) -> (Found, Result<(), ToolFailure>) {
        let found = Arc::<Mutex<Found>>::default();
        let search = web::WebSearch {
            endpoint: web.url.clone(),
            question: Arc::clone(question),
            bounds,
            reading: Reading::default(),
            lane: self.pages.clone(),
            found: Arc::clone(&found),
        };
        let ended = match Session::new(self.host.clone(), invocation, None, true) {
            Ok(session) => session.run(search).await.map(drop),
            Err(failure) => Err(failure),
        };
        let found = std::mem::take(&mut *found.lock().unwrap_or_else(PoisonError::into_inner));
        (found, ended)
    }
}

/// The result of a call.
fn result(question: &Question, depth: Depth, found: Found, most: usize) -> Value {
    let Found { mut findings, left_out, files, bytes, results, pages } = found;
    // Stable: of what is equally good, the workspace comes first.
    findings.sort_by(|one, other| other.score.total_cmp(&one.score));
    findings.truncate(most);
    let findings: Vec<Value> = findings.iter().map(findings::Finding::shown).collect();
    let left_out: Vec<Value> = LeftOut::shown(&left_out);
    json!({"content": {"result": {
        "query": question.text,
        "depth": depth,
        "findings": findings,
        "left_out": left_out,
        "searched": {"files": files, "bytes": bytes, "results": results, "pages": pages},
    }}})
}

#[cfg(test)]
mod tests;
