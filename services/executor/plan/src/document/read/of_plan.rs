//! Reads what a plan says beside its steps.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use serde_json::Value as Json;

use crate::{
    Backoff, Budget, Escalation, Input, LimitDraft, OnError, OnExhausted, RecoveryStrategy, StartRate, StepDraft, Then,
    WhenFull,
    check::retry_problems,
    limits::{MAX_AT_ONCE, MAX_BUDGET, MAX_ESCALATIONS, MAX_PARALLELISM},
    nearest,
    path::shown,
    recovery::{class_named, class_names},
};

use super::{super::tree::Kind, Reader, Value};

/// The input that is a plan's working memory.
const MEMORY: &str = "memory";

impl<'n> Reader<'n> {
    pub(super) fn inputs(&mut self, inputs: &Value<'n>) -> BTreeMap<String, Input> {
        let Some(entries) = inputs.node.entries() else {
            inputs.refuse(&mut self.report, || "must be an object with an entry for each input".to_owned());
            return BTreeMap::new();
        };
        let mut read = BTreeMap::new();
        for entry in entries {
            let value = Value { path: inputs.path.key(entry.key.name.clone()), node: &entry.value };
            let mut input = Input::default();
            // `name:` alone declares an input without more.
            if !matches!(entry.value.kind, Kind::Null)
                && let Some(mut fields) =
                    value.fields(&mut self.report, "an object with `description`, `schema` and `default`")
            {
                input.description = self.optional_text(&mut fields, "description");
                input.schema = self.precise(fields.take_exactly("schema"));
                input.default = self.precise(fields.take_with_null("default"));
                fields.finish(&mut self.report);
            }
            read.insert(entry.key.name.clone(), input);
        }
        read
    }

    /// The values of the plan's outputs, by their names.
    pub(super) fn outputs(&mut self, outputs: &Value<'n>) -> BTreeMap<String, Json> {
        let Some(entries) = outputs.node.entries() else {
            outputs.refuse(&mut self.report, || {
                "must be an object with a value for each output, such as {version: \"${STEP.result}\"}".to_owned()
            });
            return BTreeMap::new();
        };
        let read = entries.iter().map(|entry| {
            let value = Value { path: outputs.path.key(entry.key.name.clone()), node: &entry.value };
            (entry.key.name.clone(), self.precise(Some(value)).unwrap_or_default())
        });
        read.collect()
    }

    /// The working memory that other planners hand over with a plan: an input, so that templates read it and a start may give another.
    pub(super) fn memory(&mut self, memory: &Value<'n>, inputs: &mut BTreeMap<String, Input>) {
        if !matches!(memory.node.kind, Kind::Map(_)) {
            memory.refuse(&mut self.report, || {
                "must be an object with what the steps read as `${inputs.memory.NAME}`".to_owned()
            });
            return;
        }
        let input = Input {
            description: "The working memory that the execution begins with.".to_owned(),
            schema: Some(serde_json::json!({"type": "object"})),
            default: self.precise(Some(memory.clone())),
        };
        if inputs.insert(MEMORY.to_owned(), input).is_some() {
            memory.refuse(&mut self.report, || {
                format!("is the input `{MEMORY}`, which `inputs` declares too: give only one of them")
            });
        }
    }

    /// Gives the steps of a kind that have no retry policy, neither of their own nor of a group, the one that the plan has for the kind.
    pub(super) fn retry_defaults(&mut self, defaults: &Value<'n>, steps: &mut [StepDraft]) {
        let Some(entries) = defaults.node.entries() else {
            defaults.refuse(&mut self.report, || {
                "must be an object with a retry policy for each tool, such as {run_terminal: {max_attempts: 3}}"
                    .to_owned()
            });
            return;
        };
        let mut of_kinds: HashMap<String, Vec<usize>> = HashMap::new();
        for (place, step) in steps.iter().enumerate() {
            if let Some(name) = step.kind.retried_as() {
                of_kinds.entry(name.to_owned()).or_default().push(place);
            }
        }
        for entry in entries {
            let name = entry.key.name.as_str();
            let value = Value { path: defaults.path.key(name.to_owned()), node: &entry.value };
            let Some(retry) = self.retry(&value) else { continue };
            let problems = retry_problems(&retry);
            for (field, message) in &problems {
                self.report.refuse(&value.path.join(field), value.node.offset, || message.clone());
            }
            let Some(places) = of_kinds.get(name) else {
                value.refuse(&mut self.report, || {
                    let near = nearest(name, of_kinds.keys().map(String::as_str));
                    let near = near.map(|near| format!("; did you mean `{}`?", shown(near))).unwrap_or_default();
                    format!(
                        "no step of the plan calls `{}`{near} (a step with a plan of its own is `plan`, one with several calls `calls`)",
                        shown(name)
                    )
                });
                continue;
            };
            if problems.is_empty() {
                for &place in places {
                    steps[place].retry.get_or_insert_with(|| retry.clone());
                }
            }
        }
    }

    pub(super) fn escalation(&mut self, value: &Value<'n>) -> Option<Escalation> {
        let what = "an object such as {retries: 2, backoff: [10s, 1m], then: pause}";
        let mut fields = value.fields(&mut self.report, what)?;
        let retries = fields.take_exactly("retries");
        let retries = retries.map_or(Some(0), |value| value.whole(&mut self.report, 0..=MAX_ESCALATIONS));
        let backoff = fields.take_exactly("backoff").map_or(Some(Backoff::DEFAULT), |value| self.backoff(&value));
        let then = fields.take_exactly("then").map_or(Some(Then::default()), |value| {
            let word = value.text(&mut self.report);
            let known = Then::WORDS.iter().find(|(known, _)| *known == word);
            if known.is_none() && matches!(value.node.kind, Kind::Text(_)) {
                value.refuse(&mut self.report, || format!("must be fail or pause, not `{}`", shown(&word)));
            }
            known.map(|(_, then)| *then)
        });
        fields.finish(&mut self.report);
        Some(Escalation { retries: retries?, backoff: backoff?, then: then? })
    }

    /// The most that calls may use, of a plan or a step.
    pub(super) fn budget(&mut self, value: &Value<'n>) -> Option<Budget> {
        let mut fields =
            value.fields(&mut self.report, "an object such as {calls: 100, tokens: 200000, cost: 1.50}")?;
        let mut amount = |name| {
            let value = fields.take_exactly(name);
            // What cannot be read is refused once: this stands for it.
            value.map(|value| value.whole_number(&mut self.report, 1..=MAX_BUDGET).unwrap_or(1))
        };
        let [calls, output_bytes, tokens] = ["calls", "output_bytes", "tokens"].map(&mut amount);
        let cost_micros = fields.take_exactly("cost").map(|value| self.dollars(&value));
        let on_exhausted = fields.take_exactly("on_exhausted").map_or(Some(OnExhausted::default()), |value| {
            let word = value.text(&mut self.report);
            let known = OnExhausted::WORDS.iter().find(|(known, _)| *known == word);
            if known.is_none() && matches!(value.node.kind, Kind::Text(_)) {
                value.refuse(&mut self.report, || format!("must be pause or fail, not `{}`", shown(&word)));
            }
            known.map(|(_, follows)| *follows)
        });
        fields.finish(&mut self.report);
        Some(Budget { calls, output_bytes, tokens, cost_micros, on_exhausted: on_exhausted? })
    }

    /// An amount of money in US dollars, in millionths.
    fn dollars(&mut self, value: &Value<'n>) -> u64 {
        let number = match &value.node.kind {
            Kind::Number(number) => number.as_f64(),
            _ => None,
        };
        let micros =
            number.map(|dollars| (dollars * 1e6).round()).filter(|micros| (1.0..=MAX_BUDGET as f64).contains(micros));
        if micros.is_none() {
            value.refuse(&mut self.report, || {
                format!("must be a number of US dollars such as 1.50, at least 0.000001{}", value.instead_of_number())
            });
        }
        // What cannot be read is refused once: this stands for it.
        micros.map_or(1, |micros| micros as u64)
    }

    /// The limits that executions of the plan share with others.
    pub(super) fn execution_limits(&mut self, limits: &Value<'n>) -> Vec<LimitDraft> {
        let entries = limits.list(&mut self.report, "limits, such as [{key: deploy, at_once: 1}]");
        entries.iter().filter_map(|entry| self.execution_limit(entry)).collect()
    }

    fn execution_limit(&mut self, value: &Value<'n>) -> Option<LimitDraft> {
        let what = "an object such as {key: deploy, at_once: 1, when_full: wait}";
        let mut fields = value.fields(&mut self.report, what)?;
        let key = self.optional_text(&mut fields, "key");
        let at_once = fields.take_exactly("at_once");
        // What cannot be read is refused once: this stands for it.
        let at_once = at_once.map(|value| value.whole(&mut self.report, 1..=MAX_AT_ONCE).unwrap_or(1));
        let rate = fields.take_exactly("rate").map(|value| {
            let mut rate = StartRate { starts: 1, window: Duration::from_secs(1) };
            if let Some(mut fields) = value.fields(&mut self.report, "an object such as {starts: 10, window: 1m}") {
                match fields.take_exactly("starts") {
                    Some(starts) => rate.starts = starts.whole(&mut self.report, 1..=MAX_AT_ONCE).unwrap_or(1),
                    None => value.refuse(&mut self.report, || {
                        "has no `starts`: say how many executions may start, such as {starts: 10, window: 1m}"
                            .to_owned()
                    }),
                }
                match fields.take_exactly("window") {
                    Some(window) => rate.window = self.duration(&window).unwrap_or(rate.window),
                    None => value.refuse(&mut self.report, || {
                        "has no `window`: say in how much time, such as {starts: 10, window: 1m}".to_owned()
                    }),
                }
                fields.finish(&mut self.report);
            }
            rate
        });
        let when_full = fields.take_exactly("when_full").map_or(WhenFull::default(), |value| {
            let word = value.text(&mut self.report);
            let known = WhenFull::WORDS.iter().find(|(known, _)| *known == word);
            if known.is_none() && matches!(value.node.kind, Kind::Text(_)) {
                value.refuse(&mut self.report, || {
                    format!("must be wait, cancel_older or refuse, not `{}`", shown(&word))
                });
            }
            known.map_or(WhenFull::default(), |(_, known)| *known)
        });
        fields.finish(&mut self.report);
        Some(LimitDraft { key, at_once, rate, when_full })
    }

    /// Reads the strategies for failures, by the class of the failure.
    pub(super) fn on_error(&mut self, on_error: &Value<'n>) -> OnError {
        let Some(entries) = on_error.node.entries() else {
            on_error.refuse(&mut self.report, || {
                "must be an object with what follows each class of failures, such as {TIMEOUT: use_cache}".to_owned()
            });
            return OnError::new();
        };
        let mut read = OnError::new();
        for entry in entries {
            let name = entry.key.name.as_str();
            let value = Value { path: on_error.path.key(name.to_owned()), node: &entry.value };
            let class = class_named(name);
            if class.is_none() {
                value.refuse(&mut self.report, || {
                    let near = nearest(&name.to_uppercase(), class_names());
                    let near = near.map(|near| format!("; did you mean `{near}`?"));
                    let known = || format!(": write one of {}", class_names().collect::<Vec<_>>().join(", "));
                    format!("`{}` is not a class of failures{}", shown(name), near.unwrap_or_else(known))
                });
            }
            let word = if let Kind::Text(word) = &value.node.kind { Some(word.as_str()) } else { None };
            let strategy = RecoveryStrategy::WORDS.iter().find(|(known, _)| Some(*known) == word);
            if strategy.is_none() {
                value.refuse(&mut self.report, || {
                    let given = word.map(|word| format!(", not `{}`", shown(word))).unwrap_or_default();
                    let words = RecoveryStrategy::WORDS.iter().map(|(known, _)| *known);
                    let near = word.and_then(|word| nearest(word, words));
                    let near = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
                    format!("must be use_cache, queue_for_later or compensate{given}{near}")
                });
            }
            read.extend(class.zip(strategy.map(|(_, strategy)| *strategy)));
        }
        read
    }

    /// How many steps may use each resource at the same time.
    pub(super) fn capacities(&mut self, resources: &Value<'n>) -> BTreeMap<String, u32> {
        let Some(entries) = resources.node.entries() else {
            resources.refuse(&mut self.report, || {
                "must be an object with the number of steps that may use each resource at once, such as {api: 3}"
                    .to_owned()
            });
            return BTreeMap::new();
        };
        let capacities = entries.iter().map(|entry| {
            let value = Value { path: resources.path.key(entry.key.name.clone()), node: &entry.value };
            // What cannot be read is refused once: this stands for it.
            (entry.key.name.clone(), value.whole(&mut self.report, 1..=MAX_PARALLELISM).unwrap_or(1))
        });
        capacities.collect()
    }
}
