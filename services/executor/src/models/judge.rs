//! A criterion that a model judges: it is asked once, and its verdict is the end of the call that a check of a step takes.

use std::{sync::Arc, time::Duration};

use belay_agent::Judgement;
use belay_execution::{ErrorClass, Failure, Json, OperationKey, Receipt, ToolCallEnd};
use belay_reasons as reasons;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::turn::{failed, failure_of, late, unknown_model, usage_of, used_by};
use crate::{
    owned::registry::ExecutionRegistry,
    runners::operation::{ReportFault, Update},
};

/// The bytes that a token is taken for: about what tokenizers make of English and of code.
const BYTES_OF_TOKEN: u64 = 3;

/// A criterion that is to be judged.
pub(crate) struct Judging {
    pub(crate) registry: Arc<ExecutionRegistry>,
    /// The call as which it is recorded.
    pub(crate) key: OperationKey,
    /// The model, by its name in the settings.
    pub(crate) model: String,
    /// What it is told.
    pub(crate) arguments: Value,
    /// The longest time that it may take.
    pub(crate) timeout: Duration,
    pub(crate) updates: mpsc::UnboundedSender<Update>,
}

impl Judging {
    /// Asks, and reports the end to the driver.
    pub(crate) async fn run(self) {
        let _fault = ReportFault::new(&self.updates, self.key);
        let end = tokio::time::timeout(self.timeout, self.ask()).await.unwrap_or_else(|_| late());
        // An error means that the driver has ended.
        let _ = self.updates.send(Update::Ended { operation: self.key, end, is_copied: false });
    }

    async fn ask(&self) -> ToolCallEnd {
        let name = &self.model;
        let model = match self.registry.models.get(name) {
            Some(model) if !model.is_refused() => model,
            found => return unknown_model(name, found.is_some()),
        };
        let (window, max_output) = (model.model().window, model.model().max_output);
        let prompt = belay_agent::judge_prompt(&self.arguments, max_output);
        // Some servers cut what is too long without a word, and a judge that was shown a part would judge that.
        let expected = belay_agent::judge_size(&self.arguments) as u64 / BYTES_OF_TOKEN;
        if expected.saturating_add(max_output) > window {
            let message = format!(
                "What the model `{name}` is to judge has about {expected} tokens, and its window has {window}, {max_output} of them for the answer: \
                 name a model with a larger one, or let the result be shorter."
            );
            return failed(Failure::new(ErrorClass::InvalidArguments, reasons::CONTEXT_EXHAUSTED, message));
        }
        let now = || self.registry.now().as_micros();
        let began = now();
        let answered = model.ask(&prompt, began.div_euclid(1_000_000), &|_| ()).await;
        let duration = Duration::from_micros(u64::try_from(now() - began).unwrap_or_default());
        let asked = match answered {
            Ok(asked) => asked,
            Err(failure) => {
                let receipt = Receipt { duration, usage: used_by(model.model(), &failure), ..Receipt::default() };
                return ToolCallEnd::Failed { failure: failure_of(name, &failure), receipt: Box::new(receipt) };
            }
        };
        let usage = asked.answer.usage.map(|usage| usage_of(model.model(), &usage));
        let receipt = Receipt { duration, usage, ..Receipt::default() };
        match belay_agent::judgement(&asked.answer) {
            Ok(Judgement { is_met: true, why }) => {
                let result = Json::canonical(&json!({"met": true, "why": why}));
                ToolCallEnd::Completed { result: result.into(), receipt: Box::new(receipt) }
            }
            Ok(Judgement { is_met: false, why }) => {
                let why = if why.is_empty() { "It does not say why.".to_owned() } else { why };
                let message = format!("The model `{name}` judges that it is not: {why}");
                let failure = Failure::new(ErrorClass::PostconditionFailed, reasons::POSTCONDITION_FAILED, message);
                ToolCallEnd::Failed { failure, receipt: Box::new(receipt) }
            }
            Err(why) => {
                let message = format!("The model `{name}` was to judge, and {why}.");
                let failure = Failure::new(ErrorClass::Transient, reasons::MODEL_ANSWER_INVALID, message);
                ToolCallEnd::Failed { failure, receipt: Box::new(receipt) }
            }
        }
    }
}
