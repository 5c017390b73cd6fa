//! A turn of a step's model: it is asked once, and what comes of that is the end of the call as which the turn is recorded.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use belay_agent::{Answered, Turn};
use belay_defects::{Defect, is_planted};
use belay_execution::{ErrorClass, Failure, Json, ModelUsage, OperationKey, Receipt, Timestamp, ToolCallEnd};
use belay_model::{Answer, Delta, End, Model, Refusal, Usage};
use belay_proto::v1::{ToolCallOutput, tool_call_output::Stream};
use belay_reasons as reasons;
use tokio::sync::mpsc;

use crate::{
    owned::registry::ExecutionRegistry,
    runners::{
        operation::{ReportFault, Update},
        output::OutputForwarder,
    },
};

/// A turn that is to be asked.
pub(crate) struct ModelTurn {
    pub(crate) registry: Arc<ExecutionRegistry>,
    /// The call as which it is recorded.
    pub(crate) key: OperationKey,
    /// The conversation, the turn last.
    pub(crate) turns: Vec<Turn>,
    /// The longest time that it may take.
    pub(crate) timeout: Duration,
    pub(crate) updates: mpsc::UnboundedSender<Update>,
    /// Shows watchers the answer while it comes.
    pub(crate) output: OutputForwarder,
}

/// An answer that is being given, as streams for watchers.
struct Streams<'a> {
    output: &'a OutputForwarder,
    /// How many bytes each has so far: the text of the answer, and what the model thinks.
    written: Mutex<[i64; 2]>,
    now: &'a (dyn Fn() -> Timestamp + Send + Sync),
}

impl Streams<'_> {
    fn show(&self, delta: Delta) {
        let (which, stream, text) = match delta {
            Delta::Text(text) => (0, Stream::Answer, text),
            Delta::Reasoning(text) => (1, Stream::Reasoning, text),
            // The call stands in the answer, which says what became of its arguments.
            Delta::Call(_) => return,
        };
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let offset = written[which];
        written[which] += i64::try_from(text.len()).unwrap_or(i64::MAX);
        self.output.forward((self.now)(), ToolCallOutput { stream: stream.into(), offset, text });
    }
}

/// How much of its words a failure has of a model that refuses, in characters.
const MAX_REFUSAL: usize = 2_000;

impl ModelTurn {
    /// Asks, and reports the end to the driver.
    pub(crate) async fn run(self) {
        let _fault = ReportFault::new(&self.updates, self.key);
        let end = match tokio::time::timeout(self.timeout, self.ask()).await {
            Ok(end) => end,
            Err(_) => late(),
        };
        self.output.end(self.registry.now());
        // An error means that the driver has ended.
        let _ = self.updates.send(Update::Ended { operation: self.key, end, is_copied: false });
    }

    async fn ask(&self) -> ToolCallEnd {
        let Some(turn) = self.turns.last() else {
            let message = "The turn is not recorded.";
            return failed(Failure::new(ErrorClass::Internal, reasons::INTERNAL, message));
        };
        let name = &turn.asked.model;
        let model = match self.registry.models.get(name) {
            Some(model) if !model.is_refused() => model,
            found => return unknown_model(name, found.is_some()),
        };
        let prompt = belay_agent::prompt(&self.turns, model.model().max_output);
        let now = || self.registry.now().as_micros();
        let began = now();
        let streams = Streams { output: &self.output, written: Mutex::default(), now: &|| self.registry.now() };
        let answered = model.ask(&prompt, began.div_euclid(1_000_000), &|delta| streams.show(delta)).await;
        let took = Duration::from_micros(u64::try_from(now() - began).unwrap_or_default());
        match answered {
            Ok(asked) => {
                let usage = asked.answer.usage.map(|usage| usage_of(model.model(), &usage));
                let receipt = Receipt { duration: took, usage, ..Receipt::default() };
                if let Some(failure) = refusal_of(name, &asked.answer) {
                    return ToolCallEnd::Failed { failure, receipt: Box::new(receipt) };
                }
                let answered = Answered::new(turn.asked.turn, asked.answer);
                let result = Json::canonical(&serde_json::to_value(answered).unwrap_or_default());
                ToolCallEnd::Completed { result: result.into(), receipt: Box::new(receipt) }
            }
            Err(failure) => {
                let receipt = Receipt { duration: took, usage: used_by(model.model(), &failure), ..Receipt::default() };
                ToolCallEnd::Failed { failure: failure_of(name, &failure), receipt: Box::new(receipt) }
            }
        }
    }
}

/// The end of a turn of which an earlier process has not recorded the answer.
pub(crate) fn lost(model: &str) -> ToolCallEnd {
    let message = format!(
        "The executor ended while the model `{model}` answered. Nothing of the answer was recorded or acted on; its server may count it all the same."
    );
    let failure = Failure::new(ErrorClass::Transient, reasons::MODEL_TURN_LOST, message);
    let usage = is_planted(Defect::LostTurnNotCounted).then(ModelUsage::default);
    ToolCallEnd::Failed { failure, receipt: Box::new(Receipt { usage, ..Receipt::default() }) }
}

/// The end of a call whose model has not answered in the time that the call had. What its server takes too long for is another failure, by the limits of the settings.
pub(super) fn late() -> ToolCallEnd {
    let message =
        "The model did not answer in the time that the turn had: raise `timeout` or `attempt_timeout` of the step.";
    failed(Failure::new(ErrorClass::Timeout, reasons::TIMEOUT, message))
}

/// The end of a call whose model cannot be asked: the settings have it no more, or, when it is `known`, not on this machine.
pub(super) fn unknown_model(name: &str, known: bool) -> ToolCallEnd {
    let (reason, message) = if known {
        let message =
            format!("The model `{name}` is not on this machine, and the settings say `local_only` or `air_gapped`.");
        (reasons::MODEL_NOT_LOCAL, message)
    } else {
        let message = format!(
            "There is no model `{name}` in the settings any more: `belay models list` shows those that there are."
        );
        (reasons::MODEL_NOT_FOUND, message)
    };
    failed(Failure::new(ErrorClass::InvalidArguments, reason, message))
}

pub(super) fn failed(failure: Failure) -> ToolCallEnd {
    ToolCallEnd::Failed { failure, receipt: Box::new(Receipt::default()) }
}

/// What a model has used, as its server has counted it.
pub(super) fn usage_of(model: &Model, usage: &Usage) -> ModelUsage {
    let Usage { input, cached_input, output, reasoning } = *usage;
    ModelUsage {
        input_tokens: input,
        cached_input_tokens: cached_input,
        output_tokens: output,
        reasoning_tokens: reasoning,
        cost_micros: model.price.map(|price| price.cost(usage)),
    }
}

/// What a model has used that has not answered: nothing where its server did not begin; `None` where nobody knows.
pub(super) fn used_by(model: &Model, failure: &belay_model::Failure) -> Option<ModelUsage> {
    use belay_model::Failure as Of;
    match failure {
        Of::Unreachable { .. } | Of::Refused { .. } | Of::Credential { .. } => Some(ModelUsage::default()),
        Of::Truncated { usage } => usage.as_ref().map(|usage| usage_of(model, usage)),
        Of::Broken { .. }
        | Of::Late { .. }
        | Of::Server { .. }
        | Of::Cut
        | Of::Malformed { .. }
        | Of::TooLarge { .. } => None,
    }
}

/// The failure of a call whose model refuses in what it answers; `None` for any other answer. What it wants to call is not called.
fn refusal_of(model: &str, answer: &Answer) -> Option<Failure> {
    (answer.end == End::Refused).then(|| {
        let (words, is_cut) = match answer.text.char_indices().nth(MAX_REFUSAL) {
            Some((end, _)) => (&answer.text[..end], "…"),
            None => (answer.text.trim(), ""),
        };
        let words = if words.is_empty() { "nothing more." } else { words };
        let message = format!("The model `{model}`, or the filter of its server, refuses. It says: {words}{is_cut}");
        Failure::new(ErrorClass::InvalidArguments, reasons::MODEL_REFUSED, message)
    })
}

/// What a step records of a model that has not answered.
pub(super) fn failure_of(model: &str, failure: &belay_model::Failure) -> Failure {
    use belay_model::Failure as Of;
    let (class, reason) = match failure {
        Of::Unreachable { .. } | Of::Broken { .. } | Of::Server { .. } | Of::Cut | Of::Credential { .. } => {
            (ErrorClass::Transient, reasons::MODEL_UNAVAILABLE)
        }
        Of::Late { .. } => (ErrorClass::Timeout, reasons::MODEL_UNAVAILABLE),
        Of::Refused { refusal, .. } => match refusal {
            Refusal::RateLimit => (ErrorClass::RateLimit, reasons::MODEL_UNAVAILABLE),
            Refusal::Overloaded | Refusal::Server => (ErrorClass::Transient, reasons::MODEL_UNAVAILABLE),
            Refusal::TooLong => (ErrorClass::InvalidArguments, reasons::CONTEXT_EXHAUSTED),
            Refusal::Credential | Refusal::NotFound | Refusal::Invalid => {
                (ErrorClass::InvalidArguments, reasons::MODEL_REFUSED)
            }
        },
        Of::Truncated { .. } | Of::Malformed { .. } | Of::TooLarge { .. } => {
            (ErrorClass::InvalidResult, reasons::MODEL_ANSWER_INVALID)
        }
    };
    let retry_after = match failure {
        Of::Refused { retry_after, .. } => *retry_after,
        _ => None,
    };
    Failure { retry_after, ..Failure::new(class, reason, format!("Model `{model}`: {failure}.")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What passes is tried again, as the server wishes; what does not, is not.
    #[test]
    fn the_class_of_a_failure_says_whether_the_model_is_asked_again() {
        use belay_model::{Failure as Of, Limit};
        let refused = |refusal| Of::Refused {
            refusal,
            status: 400,
            message: "no".into(),
            retry_after: Some(Duration::from_secs(7)),
        };
        let found = [
            Of::Unreachable { why: "x".into() },
            Of::Cut,
            Of::Late { limit: Limit::FirstByte, after: Duration::from_secs(1) },
            refused(Refusal::RateLimit),
            refused(Refusal::Overloaded),
            refused(Refusal::TooLong),
            refused(Refusal::Credential),
            Of::Truncated { usage: None },
        ]
        .map(|failure| {
            let found = failure_of("m", &failure);
            assert!(found.message.starts_with("Model `m`: "), "{}", found.message);
            (found.class, found.reason.to_string(), found.retry_after.is_some())
        });
        let unavailable = |class, waits| (class, "MODEL_UNAVAILABLE".to_owned(), waits);
        assert_eq!(
            found,
            [
                unavailable(ErrorClass::Transient, false),
                unavailable(ErrorClass::Transient, false),
                unavailable(ErrorClass::Timeout, false),
                unavailable(ErrorClass::RateLimit, true),
                unavailable(ErrorClass::Transient, true),
                (ErrorClass::InvalidArguments, "CONTEXT_EXHAUSTED".to_owned(), true),
                (ErrorClass::InvalidArguments, "MODEL_REFUSED".to_owned(), true),
                (ErrorClass::InvalidResult, "MODEL_ANSWER_INVALID".to_owned(), false),
            ]
        );
    }
}
