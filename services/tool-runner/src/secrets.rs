//! Redacts the secrets of calls, and seals the originals.
//!
//! The executor receives arguments and results unredacted, because later steps need them; it redacts what it stores and shows. Everything
//! else is redacted here by [`CallSecrets`]: ledger rows, approval subjects, live output and failure messages. If redaction changes a
//! ledger row, the original is sealed beside it.
//!
//! The files of a workspace, and staged files, are not redacted.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use belay_grant::HiddenWords;
use belay_proto::{runner_v1, v1::payload::Content};
use belay_redaction::{
    Bound, FoundSecret, Hidden, MasterKey, NotOpened, REDACTED, RedactedJson, Redactor, SealKey, is_telling, leaves,
    open, seal,
};
use serde_json::Value;

use crate::Registry;
use crate::json_of::json_of;

/// How many secrets of a context are looked for, as many as those of a call's output.
const MAX_IN_CONTEXT: usize = 256;

/// Finds and seals secrets. Clones share the state.
#[derive(Clone)]
pub struct Secrets(Arc<SharedSecrets>);

struct SharedSecrets {
    redactor: Redactor,
    master_key: MasterKey,
    registry: Registry,
    random: Box<dyn Fn() -> [u8; 32] + Send + Sync>,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets(…)")
    }
}

impl Secrets {
    /// Redacts what the redactor finds and what the schemas of the tools mark (`"writeOnly": true` or `"x-secret": true`). `random` returns
    /// 32 random bytes, for the ledger's key, which the master key wraps, and for nonces.
    pub fn new(
        redactor: Redactor,
        master_key: MasterKey,
        registry: Registry,
        random: impl Fn() -> [u8; 32] + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(SharedSecrets { redactor, master_key, registry, random: Box::new(random) }))
    }

    /// Redacts the secrets of a call of this tool with these arguments.
    pub(crate) fn of_call(&self, tool: &str, arguments: &str) -> CallSecrets {
        let tool = self.0.registry.find(tool);
        let marked = tool.as_ref().map_or_else(Vec::new, |tool| tool.parameters.secret().to_vec());
        let marked_result = tool.map_or_else(Vec::new, |tool| tool.secret_result.clone());
        let mut secrets =
            CallSecrets { redactor: self.0.redactor.clone(), marked, marked_result, known: BTreeSet::new() };
        let (mut known, mut marked) = (BTreeSet::new(), BTreeSet::new());
        if let Some(RedactedJson { shown, hidden }) = secrets.hidden(arguments, &secrets.marked) {
            for Hidden { pointer, original } in &hidden {
                let whole = shown.pointer(pointer).and_then(Value::as_str) == Some(REDACTED);
                learn(&secrets.redactor, original, whole, &mut known);
            }
            // What is too short to be looked for in texts is still hidden where it is a whole argument or word: a command gets it as one.
            let value = serde_json::from_str(arguments).unwrap_or_default();
            for (_, value) in belay_redaction::marked(&value, &secrets.marked) {
                leaves(value, &mut |value| {
                    marked.insert(value);
                });
            }
        }
        secrets.redactor = secrets.redactor.with_whole_values(marked);
        if !known.is_empty() {
            secrets.redactor = secrets.redactor.with_literals(&known).expect("their lengths are within what is taken");
        }
        secrets.known = known;
        secrets
    }

    /// The secrets in the context of a call, as far as they can be looked for in texts: at most 256.
    pub(crate) fn in_context(&self, context: &str) -> Vec<String> {
        let secrets = CallSecrets {
            redactor: self.0.redactor.clone(),
            marked: Vec::new(),
            marked_result: Vec::new(),
            known: BTreeSet::new(),
        };
        let mut known = BTreeSet::new();
        if let Some(RedactedJson { shown, hidden }) = secrets.hidden(context, &[]) {
            for Hidden { pointer, original } in &hidden {
                let whole = shown.pointer(pointer).and_then(Value::as_str) == Some(REDACTED);
                learn(&secrets.redactor, original, whole, &mut known);
            }
        }
        known.into_iter().take(MAX_IN_CONTEXT).collect()
    }

    /// Creates a key for a ledger, wrapped for storage.
    pub(crate) fn new_key(&self, ledger: &str) -> Vec<u8> {
        self.0.master_key.wrap(&owner(ledger), &SealKey::new((self.0.random)()), self.nonce())
    }

    /// Unwraps the key of a ledger.
    pub(crate) fn with_key(&self, ledger: &str, wrapped: &[u8]) -> Result<Sealer, NotOpened> {
        let key = self.0.master_key.unwrap(&owner(ledger), wrapped)?;
        Ok(Sealer { secrets: self.clone(), key })
    }

    fn nonce(&self) -> [u8; 24] {
        *(self.0.random)().first_chunk().expect("24 is less than 32")
    }
}

/// The owner of the key. An execution's uid never contains a blank, so the two kinds of owner are distinct.
fn owner(ledger: &str) -> String {
    format!("ledger {ledger}")
}

/// The part of a call that is sealed. Numbers are never reused.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Part {
    Call = 1,
    Approval = 2,
    Contents = 3,
    Plan = 4,
    Layer = 5,
}

/// Seals and opens values in the ledger.
#[derive(Debug)]
pub(crate) struct Sealer {
    secrets: Secrets,
    key: SealKey,
}

impl Sealer {
    pub(crate) fn seal(&self, call: &str, part: Part, text: &[u8]) -> Vec<u8> {
        seal(&self.key, Bound { execution: call, sequence: part as i64 }, text, self.secrets.nonce())
    }

    pub(crate) fn open(&self, call: &str, part: Part, sealed: &[u8]) -> Result<Vec<u8>, NotOpened> {
        open(&self.key, Bound { execution: call, sequence: part as i64 }, sealed)
    }

    /// Redacts the secrets of a call.
    pub(crate) fn of_call(&self, call: &runner_v1::ToolCall) -> CallSecrets {
        self.secrets.of_call(&call.tool, &json_of(call.arguments.as_ref())).with_found(&call.secrets)
    }
}

/// Redacts the secrets of one call.
#[derive(Debug)]
pub(crate) struct CallSecrets {
    redactor: Redactor,
    /// The arguments that the schema marks as secret, as JSON pointers.
    marked: Vec<String>,
    /// The parts of the result that the schema marks.
    marked_result: Vec<String>,
    /// The values that are looked for in texts, beside what the rules find.
    known: BTreeSet<String>,
}

impl CallSecrets {
    /// The secrets that this redactor finds.
    #[cfg(test)]
    pub(crate) fn with(redactor: Redactor) -> Self {
        Self { redactor, marked: Vec::new(), marked_result: Vec::new(), known: BTreeSet::new() }
    }

    /// Whether the schema marks parts of the result.
    pub(crate) fn marks_result(&self) -> bool {
        !self.marked_result.is_empty()
    }

    /// The same with values that the call's output has shown to be secrets.
    pub(crate) fn with_found(&self, values: &[String]) -> Self {
        let telling = || values.iter().filter(|value| is_telling(value));
        let redactor = self.redactor.with_literals(telling()).unwrap_or_else(|_| self.redactor.clone());
        let known = self.known.iter().chain(telling()).cloned().collect();
        Self { redactor, marked: self.marked.clone(), marked_result: self.marked_result.clone(), known }
    }

    /// The values that are looked for in texts, beside what the rules find.
    pub(crate) fn known(&self) -> &BTreeSet<String> {
        &self.known
    }

    pub(crate) fn redactor(&self) -> &Redactor {
        &self.redactor
    }

    /// The redacted call.
    pub(crate) fn call(&self, call: &runner_v1::ToolCall) -> runner_v1::ToolCall {
        let mut shown = runner_v1::ToolCall { secrets: Vec::new(), ..call.clone() };
        if let Some(Content::Json(json)) = shown.arguments.as_mut().and_then(|payload| payload.content.as_mut()) {
            *json = self.arguments(json);
        }
        if let Some(Content::Json(json)) = shown.result.as_mut().and_then(|payload| payload.content.as_mut()) {
            *json = self.json(json, &self.marked_result);
        }
        if let Some(failure) = &mut shown.failure {
            failure.message = self.text(&failure.message);
            for stream in failure.last_output.iter_mut().flat_map(|output| [&mut output.stdout, &mut output.stderr]) {
                *stream = self.text(stream);
            }
        }
        if let Some(receipt) = &mut shown.receipt {
            receipt.files.iter_mut().for_each(|file| file.path = self.text(&file.path));
            receipt.left_out.iter_mut().for_each(|left_out| *left_out = self.text(left_out));
            if let Some(intent) = &mut receipt.intent {
                for words in [&mut intent.command, &mut intent.environment, &mut intent.paths] {
                    *words = self.command(words);
                }
                for word in [&mut intent.program, &mut intent.working_directory] {
                    *word = self.command(std::slice::from_ref(word)).remove(0);
                }
            }
        }
        let receipt = shown.receipt.as_mut();
        let (decided, did) =
            receipt.map_or((None, None), |receipt| (receipt.decision.as_mut(), receipt.effect.as_mut()));
        let need = shown.approval_need.as_mut();
        let (asked, does) = need.map_or((None, None), |need| (need.decision.as_mut(), need.effect.as_mut()));
        for decision in [decided, asked].into_iter().flatten() {
            decision.reason = self.text(&decision.reason);
        }
        for change in [did, does].into_iter().flatten().flat_map(|effect| &mut effect.changes) {
            change.path = self.text(&change.path);
        }
        shown
    }

    /// Redacted arguments; a value that the schema marks is replaced as a whole.
    pub(crate) fn arguments(&self, json: &str) -> String {
        self.json(json, &self.marked)
    }

    /// A redacted argument vector.
    pub(crate) fn command(&self, words: &[String]) -> Vec<String> {
        let shown = self.redactor.redact_json::<&str>(&words.into(), &[]).shown;
        let shown = shown.as_array().into_iter().flatten();
        shown.map(|word| word.as_str().unwrap_or(REDACTED).to_owned()).collect()
    }

    /// Counts the values of arguments of which something is hidden, by the rule that hides it first.
    pub(crate) fn hidden_arguments(&self, json: &str) -> BTreeMap<String, u32> {
        match self.hidden(json, &self.marked) {
            Some(redacted) => self.count(&redacted),
            None => self.hidden_text(json),
        }
    }

    /// Counts the words of an argument vector of which something is hidden, likewise.
    pub(crate) fn hidden_words(&self, words: &[String]) -> BTreeMap<String, u32> {
        self.count(&self.redactor.redact_json::<&str>(&words.into(), &[]))
    }

    /// The rule that hides something of a text, as one; empty when nothing is hidden.
    pub(crate) fn hidden_text(&self, words: &str) -> BTreeMap<String, u32> {
        self.rule(words).map(|rule| (rule, 1)).into_iter().collect()
    }

    fn count(&self, redacted: &RedactedJson) -> BTreeMap<String, u32> {
        let mut rules = BTreeMap::new();
        for Hidden { pointer, original } in &redacted.hidden {
            let whole = redacted.shown.pointer(pointer).and_then(Value::as_str) == Some(REDACTED);
            // A value that is marked is known from then on, as a literal.
            let is_marked = |rule: &String| whole && rule == FoundSecret::LITERAL;
            let rule = original.as_str().and_then(|text| self.rule(text)).filter(|rule| !is_marked(rule));
            *rules.entry(rule.unwrap_or_else(|| HiddenWords::NAMED.to_owned())).or_default() += 1;
        }
        rules
    }

    /// The rule that hides the first part of a text; `None` when nothing of it is hidden.
    fn rule(&self, text: &str) -> Option<String> {
        let found = self.redactor.may_hide(text).then(|| self.redactor.redact_text(text).found)?;
        found.first().map(|found| found.rule.to_owned())
    }

    /// Redacted text.
    pub(crate) fn text(&self, words: &str) -> String {
        match self.redactor.may_hide(words) {
            true => self.redactor.redact_text(words).text,
            false => words.to_owned(),
        }
    }

    fn json(&self, json: &str, marked: &[String]) -> String {
        match self.hidden(json, marked) {
            Some(redacted) if redacted.hidden.is_empty() => json.to_owned(),
            Some(redacted) => redacted.shown.to_string(),
            None => self.text(json),
        }
    }

    /// The redacted JSON; `None` if it cannot contain a secret or is not JSON.
    fn hidden(&self, json: &str, marked: &[String]) -> Option<RedactedJson> {
        if marked.is_empty() && !self.redactor.may_hide_json(json) {
            return None;
        }
        let value = serde_json::from_str(json).ok()?;
        Some(self.redactor.redact_json(&value, marked))
    }
}

/// Adds the secrets in a value to `known`. `whole`: the whole value is secret.
fn learn(redactor: &Redactor, value: &Value, whole: bool, known: &mut BTreeSet<String>) {
    let mut add = |text: &str| {
        if is_telling(text) {
            known.insert(text.to_owned());
        }
    };
    match value {
        Value::String(text) if whole => add(text),
        Value::String(text) => redactor.redact_text(text).found.iter().for_each(|at| add(&text[at.start..at.end])),
        Value::Number(number) => add(&number.to_string()),
        Value::Array(items) => items.iter().for_each(|item| learn(redactor, item, whole, known)),
        Value::Object(members) => members.iter().for_each(|(name, member)| {
            learn(redactor, &Value::from(name.as_str()), false, known);
            learn(redactor, member, whole, known);
        }),
        Value::Null | Value::Bool(_) => {}
    }
}
