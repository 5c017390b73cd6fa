//! Questions that calls ask while they run: recorded as they come, and answered at the tool runner.
//!
//! The runner says which questions of a call are open whenever that changes, and to each session that follows the call. So nothing here has to last: a question
//! is in the execution's events, and so is what became of it, and whatever is still open at the runner and has a reply is told it.

use std::sync::Arc;

use belay_execution::{Event, Form, OperationKey, QuestionReply};
use belay_proto::{
    runner_v1::{self, answer_tool_call_request::Reply},
    v1,
};
use belay_service_kit::Retry;
use tonic::Code;

use super::Driver;
use crate::wire;

impl Driver {
    /// The runner says which questions of a call are open.
    pub(super) fn on_asking(
        &mut self,
        call: OperationKey,
        asked: Vec<runner_v1::ToolCallQuestion>,
        events: &mut Vec<Event>,
    ) {
        self.questions.begin(call);
        let open: Vec<&str> = asked.iter().map(|question| question.id.as_str()).collect();
        for forgotten in self.execution.forgotten_questions(call, &open) {
            // An error means that it ends in another way.
            events.extend(self.execution.record(self.now(), None, forgotten).ok());
        }
        for runner_v1::ToolCallQuestion { id, form, timeout, may_hold_for_execution } in asked {
            let now = self.now();
            let until = timeout.and_then(|timeout| belay_proto::to_duration(&timeout));
            let until = until.map(|until| now.saturating_add(until));
            let body = form_of(form).map(|form| self.execution.ask(call, &id, form, until, may_hold_for_execution));
            let problem = match body {
                Ok(None) => None,
                Ok(Some(body)) => match self.execution.record(now, None, body) {
                    Ok(event) => {
                        events.push(event);
                        None
                    }
                    // The call ends, and needs no reply.
                    Err(_) if self.execution.is_stopping() => None,
                    Err(illegal) => {
                        tracing::warn!(execution = self.execution_name, question = id, %illegal, "A question is not asked");
                        Some("the executor does not ask so many questions of one call".to_owned())
                    }
                },
                Err(problem) => Some(problem),
            };
            self.questions.open.insert((call, id.into()), problem);
        }
    }

    /// Tells the runner what became of the questions that are open there. Called when the events that say so are durable.
    pub(super) fn tell_replies(&mut self) {
        let execution = &self.execution;
        self.questions.retain(|call| execution.operation(call).is_some());
        let replies = self.questions.open.iter().filter_map(|(question @ (call, id), problem)| {
            let reply = match (execution.reply_to(*call, id), problem) {
                (Some(reply), _) => reply.clone(),
                (None, Some(problem)) => QuestionReply::Declined { reason: problem.clone() },
                (None, None) => return None,
            };
            (!self.questions.is_told(question)).then(|| (question.clone(), reply))
        });
        for (question, reply) in replies.collect::<Vec<_>>() {
            let (call, id) = &question;
            let message = runner_v1::AnswerToolCallRequest {
                name: wire::call_name(&self.execution_name, &execution.operation_id(*call)),
                question: id.to_string(),
                reply: Some(match reply {
                    QuestionReply::Answered(answer) => Reply::Answer(wire::inline(&answer)),
                    QuestionReply::Declined { reason } => Reply::Declined(runner_v1::AnswerDeclined { reason }),
                    QuestionReply::TimedOut => Reply::TimedOut(runner_v1::AnswerTimedOut {}),
                }),
                fence: Some(self.registry.runner_fence(execution.created().shard)),
            };
            let registry = Arc::clone(&self.registry);
            let task = tokio::spawn(async move {
                let mut retry = Retry::RPC;
                while let Err(status) = registry.runner.answer(message.clone()).await {
                    tracing::debug!(call = message.name, question = message.question, %status, "The tool runner does not take an answer");
                    // The call's own operation learns what became of it.
                    use Code::{FailedPrecondition, InvalidArgument, NotFound, Unimplemented};
                    if matches!(status.code(), NotFound | FailedPrecondition | InvalidArgument | Unimplemented) {
                        return;
                    }
                    retry.pause(&registry.ids).await;
                }
            });
            self.questions.tells(question, task.abort_handle());
        }
    }
}

/// The form of a question.
fn form_of(form: Option<v1::Form>) -> Result<Form, String> {
    let v1::Form { title, description, schema } = form.ok_or("the question has no form")?;
    let schema =
        belay_json::read(&schema).map_err(|refused| format!("the question's schema is not JSON: {refused}"))?;
    Ok(Form::new(title, description, &schema))
}
