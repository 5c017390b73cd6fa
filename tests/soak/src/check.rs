//! Comparisons of executions that have ended: of what their events say with what readers get, and with what their children did.

use std::{collections::BTreeMap, fs, path::Path, pin::Pin};

use belay_e2e::{client::name, folded_execution::FoldedExecution};
use belay_proto::v1::{
    self, child_ended::End, execution::State, execution_event::Kind, step, watch_execution_response::Content,
};
use serde_json::Value;
use tonic::Code;

use crate::{
    readers::refused,
    soak::Soak,
    wrong::{CheckResult, Wrong, id},
};

/// An execution that has ended, as three readers see it.
pub(crate) struct CommandEnd {
    pub(crate) picture: FoldedExecution,
    pub(crate) execution: v1::Execution,
    pub(crate) steps: BTreeMap<String, v1::Step>,
}

impl CommandEnd {
    fn id(&self) -> &str {
        id(&self.execution.name)
    }

    /// A difference, with the events that it is about.
    pub(crate) fn wrong<T>(&self, step: &str, what: String) -> CheckResult<T> {
        Err(Box::new(Wrong::new(self.id(), step, what).with(self.picture.events())))
    }

    /// Requires that it ended in this state.
    pub(crate) fn require(&self, state: State) -> CheckResult {
        if self.execution.state() == state {
            return Ok(());
        }
        let failure = self.execution.failure.as_ref().map(|failure| failure.message.as_str()).unwrap_or_default();
        let failed = self.steps.values().find(|step| step.state() == step::State::Failed);
        let step = failed.map(|step| step.step_id.clone()).unwrap_or_default();
        self.wrong(&step, format!("it ended as {:?} and not as {state:?}: {failure}", self.execution.state()))
    }

    /// How often a step has completed.
    fn completions(&self, step: &str) -> usize {
        let is_of_step = |event: &&v1::ExecutionEvent| event.step_id == step;
        let of_step = self.picture.events().iter().filter(is_of_step);
        of_step.filter(|event| matches!(event.kind, Some(Kind::StepCompleted(_)))).count()
    }

    /// The output of a step that has completed.
    pub(crate) fn output(&self, step: &str) -> Option<Value> {
        output(self.steps.get(step)?)
    }
}

/// The output of a step; `None` when it has none, or it is a blob.
fn output(step: &v1::Step) -> Option<Value> {
    json(step.output.as_ref()?)
}

fn json(payload: &v1::Payload) -> Option<Value> {
    serde_json::from_str(payload.as_json()?).ok()
}

/// Watches an execution to its end; children that begin meanwhile are shown to the readers.
pub(crate) async fn watch(soak: &Soak, execution: &str) -> CheckResult<FoldedExecution> {
    soak.is_alive(execution);
    let mut picture = FoldedExecution::default();
    let mut stream =
        soak.client().watch(execution, "").await.map_err(|status| refused(execution, "WatchExecution", &status))?;
    loop {
        match stream.message().await {
            Ok(Some(message)) => {
                if let Some(Content::Event(event)) = &message.content
                    && let Some(Kind::ChildStarted(started)) = &event.kind
                {
                    soak.is_alive(&started.execution_id);
                }
                picture.read(message);
            }
            Ok(None) if picture.ended() => return Ok(picture),
            Ok(None) => {
                let wrong = Wrong::new(execution, "", "its watch ended before it did".to_owned());
                return Err(Box::new(wrong.with(picture.events())));
            }
            Err(status) => return Err(refused(execution, "WatchExecution", &status)),
        }
    }
}

/// Watches an execution to its end, and compares it and all that it has started with each other.
///
/// Boxed, since its children are compared in the same way.
pub(crate) fn end<'a>(
    soak: &'a Soak,
    execution: &'a str,
) -> Pin<Box<dyn Future<Output = CheckResult<CommandEnd>> + Send + 'a>> {
    Box::pin(async move {
        let picture = watch(soak, execution).await?;
        compare(soak, execution, picture).await
    })
}

/// Compares an execution that was watched to its end, and all that it has started.
pub(crate) async fn compare(soak: &Soak, execution: &str, picture: FoldedExecution) -> CheckResult<CommandEnd> {
    let ended = CommandEnd {
        picture,
        execution: soak.client().get(execution).await,
        steps: soak.client().steps(execution).await.into_iter().map(|step| (step.step_id.clone(), step)).collect(),
    };
    soak.count("executions ended", 1);
    end_is_shown(&ended)?;
    calls_complete_once(&ended)?;
    lists_are_their_entries(soak, &ended)?;
    children_are_recorded(soak, &ended).await?;
    Ok(ended)
}

/// The events and GetExecution show the same end, of the execution and of each step.
fn end_is_shown(ended: &CommandEnd) -> CheckResult {
    let CommandEnd { picture, execution, .. } = ended;
    if picture.state() != Some(execution.state()) || picture.last_sequence() != execution.last_sequence {
        let what = format!(
            "its events end with {} and {:?}, and GetExecution shows {} and {:?}",
            picture.last_sequence(),
            picture.state(),
            execution.last_sequence,
            execution.state()
        );
        return ended.wrong("", what);
    }
    let mut ends = BTreeMap::new();
    for event in picture.events() {
        let state = match event.kind {
            Some(Kind::StepCompleted(_)) => step::State::Completed,
            Some(Kind::StepFailed(_)) => step::State::Failed,
            Some(Kind::StepSkipped(_)) => step::State::Skipped,
            Some(Kind::StepCancelled(_)) => step::State::Cancelled,
            _ => continue,
        };
        ends.insert(event.step_id.as_str(), state);
    }
    for (step, state) in ends {
        let shown = ended.steps.get(step).map(v1::Step::state);
        if shown != Some(state) {
            return ended.wrong(step, format!("its last end was {state:?}, and ListSteps shows {shown:?}"));
        }
    }
    Ok(())
}

/// A step that calls a tool completes as often as its calls do.
fn calls_complete_once(ended: &CommandEnd) -> CheckResult {
    for (step, shown) in &ended.steps {
        if !matches!(shown.detail, Some(step::Detail::Tool(_))) || shown.item_count.is_some() {
            continue;
        }
        let of_step = ended.picture.events().iter().filter(|event| event.step_id == *step);
        let kinds = of_step.filter_map(|event| event.kind.as_ref());
        let (mut calls, mut given) = (0, 0);
        for kind in kinds {
            match kind {
                Kind::ToolCallCompleted(_) => calls += 1,
                Kind::StepOutputSet(_) => given += 1,
                _ => {}
            }
        }
        if calls + given != ended.completions(step) {
            let what = format!("{calls} of its calls have completed, and it {} times", ended.completions(step));
            return ended.wrong(step, what);
        }
    }
    Ok(())
}

/// The output of a step that runs for each entry of a list is the list of the entries' outputs.
fn lists_are_their_entries(soak: &Soak, ended: &CommandEnd) -> CheckResult {
    let mut collected = BTreeMap::new();
    for event in ended.picture.events() {
        if let Some(Kind::StepItemsCollected(items)) = &event.kind {
            collected.insert(event.step_id.as_str(), items);
        }
    }
    for (step, items) in collected {
        let Some(Value::Array(outputs)) = items.output.as_ref().and_then(json) else {
            return ended.wrong(step, "what was collected of its entries is no list".to_owned());
        };
        let entries: Vec<Value> =
            (0..outputs.len()).map(|at| ended.output(&format!("{step}~{at}")).unwrap_or_default()).collect();
        let count = ended.steps.get(step).and_then(|step| step.item_count);
        if count.and_then(|count| usize::try_from(count).ok()) != Some(outputs.len()) {
            return ended.wrong(step, format!("{} outputs were collected of {count:?} entries", outputs.len()));
        }
        if let Some(at) = (0..outputs.len()).find(|at| outputs[*at] != entries[*at]) {
            let what = format!("its output has {} at {at}, and that entry has {}", outputs[at], entries[at]);
            return ended.wrong(step, what);
        }
        if ended.output(step).as_ref() != Some(&Value::Array(outputs)) {
            return ended.wrong(step, "its output is not what was collected".to_owned());
        }
        soak.count("collected lists compared", 1);
    }
    Ok(())
}

/// Each child that was started is recorded once, as it ended itself.
async fn children_are_recorded(soak: &Soak, ended: &CommandEnd) -> CheckResult {
    let mut started = BTreeMap::new();
    let mut ends = BTreeMap::new();
    for event in ended.picture.events() {
        let operation = (event.step_id.as_str(), event.attempt, event.operation);
        let is_twice = match &event.kind {
            Some(Kind::ChildStarted(child)) => started.insert(operation, child.execution_id.as_str()).is_some(),
            Some(Kind::ChildEnded(child)) => ends.insert(operation, child).is_some(),
            _ => false,
        };
        if is_twice {
            return ended.wrong(operation.0, format!("an event of its child is there twice: {}", event.sequence));
        }
    }
    for (operation, child) in started {
        let step = operation.0;
        let Some(recorded) = ends.get(&operation).and_then(|child| child.end.as_ref()) else {
            return ended.wrong(step, format!("it has ended, and the end of its child {child} is not recorded"));
        };
        child_is_as_recorded(soak, ended, step, child, recorded).await?;
    }
    Ok(())
}

async fn child_is_as_recorded(
    soak: &Soak,
    parent: &CommandEnd,
    step: &str,
    child: &str,
    recorded: &End,
) -> CheckResult {
    if matches!(recorded, End::Cancelled(_)) && !exists(soak, child).await? {
        // Cancelled before it was created.
        return Ok(());
    }
    // Watching one that has not ended would wait for it.
    let shown = soak.client().get(child).await;
    if shown.end_time.is_none() {
        return parent
            .wrong(step, format!("its child {child} is {:?}, and recorded as ended: {recorded:?}", shown.state()));
    }
    let child = end(soak, child).await?;
    soak.count("children compared", 1);
    let state = child.execution.state();
    let is_so = match recorded {
        End::Output(_) => state == State::Completed,
        End::Cancelled(_) => state == State::Cancelled,
        End::Failure(_) => state != State::Completed,
    };
    if !is_so {
        return parent.wrong(step, format!("its child {} is {state:?}, and recorded as {recorded:?}", child.id()));
    }
    let parent_step = format!("{}/steps/{step}", parent.execution.name);
    if child.execution.parent_step != parent_step {
        return parent.wrong(step, format!("its child {} is one of `{}`", child.id(), child.execution.parent_step));
    }
    if let End::Output(output) = recorded {
        let output = json(output).unwrap_or_default();
        let outputs = output["outputs"].as_object().cloned().unwrap_or_default();
        let is_the_childs = |(step, value): (&String, &Value)| child.output(step).as_ref() == Some(value);
        if outputs.is_empty() || !outputs.iter().all(is_the_childs) || output["execution"] != child.execution.name {
            return parent.wrong(step, format!("its output is not that of its child {}: {output}", child.id()));
        }
    }
    Ok(())
}

/// Whether there is an execution of this id.
async fn exists(soak: &Soak, execution: &str) -> CheckResult<bool> {
    let request = v1::GetExecutionRequest { name: name(execution), ..Default::default() };
    match soak.ask(|| async { soak.client().raw().get_execution(request.clone()).await }).await {
        Ok(_) => Ok(true),
        Err(status) if status.code() == Code::NotFound => Ok(false),
        Err(status) => Err(refused(execution, "GetExecution", &status)),
    }
}

/// The file has the word of each of these steps, a line each, as often as the step has completed.
pub(crate) fn lines(soak: &Soak, ended: &CommandEnd, file: &Path, steps: &[String]) -> CheckResult {
    let text = fs::read_to_string(file).unwrap_or_default();
    for step in steps {
        let lines = text.lines().filter(|line| line == step).count();
        if lines != ended.completions(step) {
            let what = format!(
                "it has completed {} times, and {} has {lines} lines of it",
                ended.completions(step),
                file.display()
            );
            return ended.wrong(step, what);
        }
    }
    if let Some(other) = text.lines().find(|line| !steps.iter().any(|step| step == line)) {
        return ended.wrong("", format!("{} has the line `{other}`, which no step writes", file.display()));
    }
    soak.count("steps with effects compared", steps.len());
    Ok(())
}
