//! What a server can do, found out by asking it: which questions there are, and what their answers show.

use serde_json::{Value, json};

use crate::{
    Answer, Arguments, Estimator, Failure, Limit, Message, Model, OfferedTool, Prompt, Refusal, Schema, ServedModel,
    ToolCalls, Usage, shortened,
};

/// The number that a model is asked to return.
const NUMBER: u64 = 7;
/// The tool that a model is asked to call.
const TOOL: &str = "report_number";
/// The most tokens of an answer to a question: a model may think before it calls a tool.
const MAX_OUTPUT: u64 = 2048;
/// The line of which long prompts consist.
const LINE: &str = "The quick brown fox jumps over the lazy dog.\n";
/// The longest sample, and the longest prompt, in bytes.
const MAX_SAMPLE: usize = 64 << 10;
const MAX_FILLING: usize = 32 << 20;
/// The least share of the tokens of a prompt that a server has counted if it has read the whole, in hundredths.
const LEAST: u64 = 90;
/// The share of the window that the filling prompt has at most, in hundredths: what was counted before is not exact.
const FILLED: u64 = 80;

/// A request of the check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// The list of the server's models.
    List,
    /// A call of a tool.
    Call,
    /// An answer that follows a schema.
    Schema,
    /// A prompt of the text that the next one has more of, from whose count follows how much that is.
    Sample,
    /// A prompt that fills most of the window.
    Window,
}

/// The outcome of a question.
#[derive(Clone, Debug, PartialEq)]
pub enum Found {
    /// The server's models, or why there is no list.
    List(Result<Vec<ServedModel>, Failure>),
    /// An answer, in how many parts it came, and the bytes of its request.
    Answer(Question, Result<(Answer, u64, usize), Failure>),
}

/// The outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As it should be.
    Passed,
    /// Usable, with less.
    Warning,
    /// Plans that name the model would fail, or not be able to do this.
    Failed,
    /// Could not be told.
    Skipped,
}

/// A finding about one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What was checked: `server`, `model`, `streams`, `tool_calls`, `schema`, `usage` or `window`.
    pub name: &'static str,
    /// How it has ended.
    pub verdict: Verdict,
    /// What was seen.
    pub seen: String,
    /// What to do about it; empty for nothing.
    pub advice: String,
}

impl Check {
    fn new(name: &'static str, verdict: Verdict, seen: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { name, verdict, seen: seen.into(), advice: advice.into() }
    }

    fn passed(name: &'static str, seen: impl Into<String>) -> Self {
        Self::new(name, Verdict::Passed, seen, "")
    }
}

/// A check of a server, and its findings so far.
#[derive(Clone, Debug, Default)]
pub struct ModelCheck {
    fills_window: bool,
    asked: Vec<Question>,
    /// What the server says of the window.
    window: Option<u64>,
    /// What was learnt from the sample.
    estimator: Option<Estimator>,
    /// What was counted by now.
    usage: Usage,
    has_ended: bool,
}

impl ModelCheck {
    /// Begins. With `fills_window`, the last question has a prompt that fills most of the window: slow, or dear, and the only way to notice a server that
    /// cuts prompts and says nothing.
    pub fn new(fills_window: bool) -> Self {
        Self { fills_window, ..Self::default() }
    }

    /// The tokens of all answers together.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// What to ask next; `None` at the end.
    pub fn next(&self) -> Option<Question> {
        let all = [Question::List, Question::Call, Question::Schema, Question::Sample, Question::Window];
        let is_left = |question: &Question| {
            let is_asked = match question {
                Question::List | Question::Call | Question::Schema => true,
                Question::Sample | Question::Window => self.fills_window,
            };
            is_asked && !self.asked.contains(question)
        };
        all.into_iter().find(is_left).filter(|_| !self.has_ended)
    }

    /// The prompt of a question about an answer.
    pub fn prompt(&self, model: &Model, question: Question) -> Prompt {
        let max_output = model.max_output.min(MAX_OUTPUT);
        let ask = |text: String| Prompt { messages: vec![Message::User(text)], max_output, ..Prompt::default() };
        match question {
            Question::List => Prompt::default(),
            Question::Call => {
                let parameters = json!({"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"], "additionalProperties": false});
                let tool =
                    OfferedTool { name: TOOL.to_owned(), description: "Reports a number.".to_owned(), parameters };
                Prompt { tools: vec![tool], ..ask(format!("Call the tool {TOOL} with the number {NUMBER}.")) }
            }
            Question::Schema => {
                let schema = json!({"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"], "additionalProperties": false});
                let schema = Schema { name: "number".to_owned(), schema };
                Prompt {
                    schema: Some(schema),
                    ..ask(format!("Answer with the number {NUMBER} as JSON: {{\"number\": {NUMBER}}}."))
                }
            }
            // About a quarter of the window: its tokens have some four bytes.
            Question::Sample => ask(text_of(usize::try_from(model.window).unwrap_or(usize::MAX).min(MAX_SAMPLE))),
            Question::Window => ask(self.filling(model)),
        }
    }

    /// A text that fills the window up to the share for the prompt, by what the server has counted before.
    fn filling(&self, model: &Model) -> String {
        let room = (model.window.saturating_sub(model.max_output.min(MAX_OUTPUT))) * FILLED / 100;
        // A thousand lines, so that a line's tokens are not rounded.
        let of_lines = self.estimator.unwrap_or(Estimator::NEW).tokens(1000 * LINE.len()).max(1);
        let lines = u128::from(room) * 1000 / u128::from(of_lines);
        text_of(usize::try_from(lines).unwrap_or(usize::MAX).saturating_mul(LINE.len()).min(MAX_FILLING))
    }

    /// Takes what a question has brought, and says what that shows.
    pub fn take(&mut self, model: &Model, found: &Found) -> Vec<Check> {
        match found {
            Found::List(list) => {
                self.asked.push(Question::List);
                self.list(model, list)
            }
            Found::Answer(question, answered) => {
                self.asked.push(*question);
                if let Ok((Answer { usage: Some(usage), .. }, _, _)) = answered {
                    self.usage.input = self.usage.input.saturating_add(usage.input);
                    self.usage.cached_input = self.usage.cached_input.saturating_add(usage.cached_input);
                    self.usage.output = self.usage.output.saturating_add(usage.output);
                    self.usage.reasoning = self.usage.reasoning.saturating_add(usage.reasoning);
                }
                match question {
                    Question::List => Vec::new(),
                    Question::Call => self.call(model, answered),
                    Question::Schema => vec![schema(model, answered)],
                    Question::Sample => self.sample(model, answered),
                    Question::Window => vec![self.filled(model, answered)],
                }
            }
        }
    }

    fn list(&mut self, model: &Model, list: &Result<Vec<ServedModel>, Failure>) -> Vec<Check> {
        let listed = match list {
            Ok(listed) => listed,
            // The path is no part of what a server has to have, and some keys are for answers alone.
            Err(Failure::Refused { refusal, status, .. })
                if *status == 403 || matches!(refusal, Refusal::NotFound | Refusal::Invalid) =>
            {
                let seen = format!("it answers, and lists no models ({status} for GET /models)");
                return vec![Check::passed("server", seen)];
            }
            Err(Failure::Malformed { .. }) => {
                return vec![Check::passed("server", "it answers, and its list of models cannot be read")];
            }
            Err(failure) => {
                self.has_ended = true;
                return vec![Check::new("server", Verdict::Failed, failure.to_string(), advice(model, failure))];
            }
        };
        let mut checks = vec![Check::passed("server", format!("it answers, and lists {}", counted(listed.len())))];
        if let [only] = listed.as_slice() {
            // llama.cpp's server answers with the only model that it has, whatever it is called.
            self.window = only.window;
        }
        match listed.iter().find(|served| is_called(&served.id, &model.model)) {
            Some(served) => {
                self.window = served.window;
                checks.push(Check::passed("model", format!("`{}` is listed", model.model)));
            }
            None if listed.is_empty() => {}
            None => {
                let mut names: Vec<String> = listed.iter().take(10).map(|served| shortened(&served.id)).collect();
                names.sort_unstable();
                let seen = format!("`{}` is not among those that it lists: {}", model.model, names.join(", "));
                let advice = format!("write one of them in `models.{}.model`, or load it there", model.name);
                checks.push(Check::new("model", Verdict::Warning, seen, advice));
            }
        }
        checks
    }

    fn call(&mut self, model: &Model, answered: &Result<(Answer, u64, usize), Failure>) -> Vec<Check> {
        let (answer, parts) = match answered {
            Ok((answer, parts, _)) => (answer, parts),
            Err(failure) => {
                self.has_ended = ends_all(failure);
                let mut advice = advice(model, failure);
                if let (Failure::Refused { refusal: Refusal::Invalid, message, .. }, ToolCalls::Native) =
                    (failure, model.tool_calls)
                {
                    advice = if message.contains("max_completion_tokens") {
                        "the model wants OpenAI's newer API: write `api: responses`".to_owned()
                    } else {
                        format!(
                            "the server may not take tools for this model: try `models.{}.tool_calls: constrained`",
                            model.name
                        )
                    };
                }
                return vec![Check::new("tool_calls", Verdict::Failed, failure.to_string(), advice)];
            }
        };
        let mut checks = vec![match parts {
            0 | 1 => Check::new(
                "streams",
                Verdict::Warning,
                "the answer came whole",
                "the limit `between_bytes` cannot notice that the server has stopped; `first_byte` has to be long enough for the whole answer",
            ),
            parts => Check::passed("streams", format!("the answer came in {parts} parts")),
        }];
        checks.push(tool_calls(model, answer));
        checks.push(match answer.usage {
            Some(usage) if usage.input > 0 => {
                let Usage { input, cached_input, output, .. } = usage;
                Check::passed("usage", format!("{input} tokens in, {cached_input} of them cached, {output} out"))
            }
            _ => Check::new(
                "usage",
                Verdict::Warning,
                "the server counts no tokens",
                "budgets of tokens and money rely on estimates, one token for each byte",
            ),
        });
        let is_told = self.window.is_some_and(|window| window < model.window);
        if is_told || !self.fills_window {
            checks.push(self.window(model));
            // Known to be too small, it need not be tried.
            self.asked.extend([Question::Sample, Question::Window]);
        }
        checks
    }

    /// What the server says of its window.
    fn window(&self, model: &Model) -> Check {
        let configured = model.window;
        match self.window {
            Some(window) if window < configured => Check::new(
                "window",
                Verdict::Failed,
                format!("the server takes {window} tokens, and the settings say {configured}"),
                format!("write `models.{}.window: {window}`, or start the server with a larger one", model.name),
            ),
            Some(window) => Check::passed("window", format!("the server takes {window} tokens")),
            None => Check::new(
                "window",
                Verdict::Skipped,
                format!("the server does not tell it; the settings say {configured} tokens"),
                "`--fill-window` tries it, with a prompt that fills most of it",
            ),
        }
    }

    /// Learns from the sample.
    fn sample(&mut self, model: &Model, answered: &Result<(Answer, u64, usize), Failure>) -> Vec<Check> {
        match answered {
            Ok((Answer { usage: Some(usage), .. }, _, bytes)) => {
                let mut estimator = Estimator::NEW;
                estimator.learn(*bytes, usage.input);
                self.estimator = Some(estimator);
                Vec::new()
            }
            // As the longer one would be.
            Ok(_) | Err(_) => {
                self.asked.push(Question::Window);
                vec![self.filled(model, answered)]
            }
        }
    }

    /// What became of a prompt that fills the window.
    fn filled(&self, model: &Model, answered: &Result<(Answer, u64, usize), Failure>) -> Check {
        match answered {
            Ok((Answer { usage: Some(usage), .. }, _, bytes)) => {
                let expected = self.estimator.unwrap_or(Estimator::NEW);
                // It is the text of the sample: the estimate is right to a few tokens.
                if usage.input < expected.tokens(*bytes) / 100 * LEAST {
                    return Check::new(
                        "window",
                        Verdict::Failed,
                        format!(
                            "the server has cut a prompt of about {} tokens to {}, and said nothing",
                            expected.tokens(*bytes),
                            usage.input
                        ),
                        format!(
                            "let the server take {} tokens (Ollama: OLLAMA_CONTEXT_LENGTH, or num_ctx in a Modelfile), or write a smaller `models.{}.window`",
                            model.window, model.name
                        ),
                    );
                }
                Check::passed("window", format!("a prompt of {} tokens was read whole", usage.input))
            }
            Ok(_) => Check::new(
                "window",
                Verdict::Skipped,
                "the server counts no tokens, so that nobody can tell whether it has read the whole prompt",
                "",
            ),
            Err(failure @ Failure::Refused { refusal: Refusal::TooLong, .. }) => Check::new(
                "window",
                Verdict::Failed,
                format!("a prompt for {} tokens is too long: {failure}", model.window),
                format!("write a smaller `models.{}.window`, or start the server with a larger one", model.name),
            ),
            Err(failure) => Check::new("window", Verdict::Failed, failure.to_string(), advice(model, failure)),
        }
    }
}

/// A text of about so many bytes, with a question about it.
fn text_of(bytes: usize) -> String {
    LINE.repeat(bytes / LINE.len()) + "How many animals are in this text? Answer with the number alone."
}

/// Whether a listed name is that of a model: Ollama lists `qwen3:latest` for what is asked for as `qwen3`.
fn is_called(listed: &str, model: &str) -> bool {
    listed == model || listed.strip_suffix(":latest") == Some(model) || listed.strip_prefix("models/") == Some(model)
}

fn counted(models: usize) -> String {
    match models {
        0 => "no models".to_owned(),
        1 => "1 model".to_owned(),
        _ => format!("{models} models"),
    }
}

/// Whether what is asked next can only end in the same way.
fn ends_all(failure: &Failure) -> bool {
    match failure {
        Failure::Unreachable { .. } | Failure::Credential { .. } | Failure::Late { limit: Limit::FirstByte, .. } => {
            true
        }
        Failure::Refused { refusal, .. } => matches!(refusal, Refusal::Credential | Refusal::NotFound),
        _ => false,
    }
}

fn tool_calls(model: &Model, answer: &Answer) -> Check {
    let other_way = match model.tool_calls {
        ToolCalls::Native => format!("try `models.{}.tool_calls: constrained`", model.name),
        ToolCalls::Constrained => "take another model, or another server: this one does not follow schemas".to_owned(),
    };
    let failed = |seen: String| Check::new("tool_calls", Verdict::Failed, seen, other_way.as_str());
    match answer.calls.as_slice() {
        [] => failed("it answered with text instead of a call".to_owned()),
        [call, ..] if call.name != TOOL => {
            failed(format!("it called `{}`, which nobody offered", shortened(&call.name)))
        }
        [call, ..] => match &call.arguments {
            Arguments::Object(arguments) if is_number(arguments) => {
                Check::passed("tool_calls", format!("{}, with the right arguments", model.tool_calls.word()))
            }
            Arguments::Object(arguments) => Check::new(
                "tool_calls",
                Verdict::Warning,
                format!(
                    "it called the tool with other arguments than it was asked to: {}",
                    shortened(&arguments.to_string())
                ),
                "a model of this size may need simpler tasks",
            ),
            Arguments::Invalid { why, .. } => failed(why.clone()),
        },
    }
}

fn is_number(value: &Value) -> bool {
    value.as_object().is_some_and(|members| members.len() == 1) && value["number"].as_u64() == Some(NUMBER)
}

fn schema(model: &Model, answered: &Result<(Answer, u64, usize), Failure>) -> Check {
    let advice = match model.tool_calls {
        ToolCalls::Native => "steps that want an answer of a form ask again until it fits",
        ToolCalls::Constrained => {
            "calls of tools rely on it: write `tool_calls: native`, or take a server that enforces schemas"
        }
    };
    let verdict = match model.tool_calls {
        ToolCalls::Native => Verdict::Warning,
        ToolCalls::Constrained => Verdict::Failed,
    };
    match answered {
        Ok((answer, _, _)) => match serde_json::from_str::<Value>(answer.text.trim()) {
            // Whatever number it is: that says something about the model.
            Ok(value) if value.as_object().is_some_and(|members| members.len() == 1) && value["number"].is_i64() => {
                Check::passed("schema", "the answer follows it")
            }
            _ => Check::new(
                "schema",
                verdict,
                "the answer does not follow the schema that was sent with the request",
                advice,
            ),
        },
        Err(failure) => Check::new("schema", verdict, failure.to_string(), advice),
    }
}

/// The remedy for a failure.
fn advice(model: &Model, failure: &Failure) -> String {
    let name = &model.name;
    match failure {
        Failure::Unreachable { .. } => {
            format!("start the server, or correct `models.{name}.base_url` ({})", model.base_url)
        }
        Failure::Late { limit, .. } => format!("raise `models.{name}.limits.{}`, or look at the server", limit.key()),
        Failure::Credential { .. } => "correct its source in `credentials`".to_owned(),
        Failure::Refused { refusal: Refusal::Credential, .. } => match &model.credential {
            Some(credential) => format!("correct the value of `credentials.{credential}`"),
            None => format!("add the server's key to `credentials`, and name it in `models.{name}.credential`"),
        },
        Failure::Refused { refusal: Refusal::NotFound, .. } => {
            format!(
                "correct `models.{name}.model` ({}) or the path of `models.{name}.base_url` ({})",
                model.model, model.base_url
            )
        }
        Failure::Refused { refusal: Refusal::RateLimit | Refusal::Overloaded, .. } => "ask again later".to_owned(),
        Failure::Truncated { .. } => format!("raise `models.{name}.max_output`"),
        Failure::Malformed { .. } => {
            format!("correct `models.{name}.api` or `models.{name}.base_url`: this may be another kind of server")
        }
        Failure::Refused { .. }
        | Failure::Broken { .. }
        | Failure::Server { .. }
        | Failure::Cut
        | Failure::TooLarge { .. } => "look at the server's log".to_owned(),
    }
}
