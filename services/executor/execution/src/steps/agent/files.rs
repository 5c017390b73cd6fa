//! The files that a model is shown with its task: what is read before the first turn, and how it is shown. A plan names paths, and patterns for paths: what matches these is found first, and
//! which of it is read follows from what was recorded then.

use std::collections::{BTreeMap, BTreeSet};

use belay_agent::ShownFile;
use belay_plan::{AgentStep, limits::MAX_FOUND_FILES};
use serde_json::{Value, json};

use super::reading::{Reading, outcome, resolved};
use crate::{
    Blobs, Execution, Failure, Json, StepKey, StepState,
    state::{AgentEntry, StepRecord},
};

/// The files that a call may have found whose result is too large to be in an event.
const MOST_FOUND: usize = 1_000;

/// The entries that are due before the first turn; none when that is. `None` while a value is not at hand.
pub(super) fn due(
    execution: &Execution,
    record: &StepRecord,
    agent: &AgentStep,
    blobs: &dyn Blobs,
) -> Option<Result<Vec<Json>, Failure>> {
    let item = |mut item: Value| {
        item["run"] = record.attempt.into();
        Json::canonical(&item)
    };
    let listed = record.items.current();
    let all = 0..agent.files().len();
    if listed.is_empty() {
        let named = |place| match agent.pattern(place) {
            Some(_) => json!({"listing": place}),
            None => json!({"file": place}),
        };
        return Some(Ok(all.map(|place| item(named(place))).collect()));
    }
    if listed.len() > all.len() || agent.found().is_none() {
        return Some(Ok(Vec::new()));
    }
    let step = execution.steps.key(&record.id)?;
    let mut reading = Reading::new(blobs);
    let findings = findings(execution, step, agent, &mut reading);
    let found = findings.shown.iter().map(|(place, index)| item(json!({"listing": place, "found": index})));
    reading.done(found.collect())
}

/// Whether these entries may follow before the first turn: one for each path and pattern of the plan, in its order, or then files that the patterns have found, in that order as well. Which of
/// these are left out may take values that are not in the events.
pub(super) fn may_read(
    execution: &Execution,
    record: &StepRecord,
    agent: &AgentStep,
    first: usize,
    entries: &[AgentEntry],
) -> bool {
    if first == 0 {
        let is_in_order = |(place, entry): (usize, &AgentEntry)| match entry {
            AgentEntry::File { place: of } | AgentEntry::Listing { place: of } => *of == place,
            _ => false,
        };
        return entries.len() == agent.files().len() && entries.iter().enumerate().all(is_in_order);
    }
    let found = entries.iter().map(|entry| match entry {
        AgentEntry::Found { place, index } => Some((*place, *index)),
        _ => None,
    });
    let Some(found) = found.collect::<Option<Vec<_>>>() else { return false };
    let has_found = |(place, index): &(usize, usize)| {
        let listing = listing(execution, record.items.current(), *place);
        let output = listing.filter(|listing| listing.state == StepState::Completed).and_then(|of| of.output.as_ref());
        let most = output.map(|output| output.inline().map_or(MOST_FOUND, |json| found_files(&json.value()).len()));
        most.is_some_and(|most| *index < most)
    };
    let is_in_order = found.is_sorted_by(|one, next| one < next);
    first == agent.files().len() && found.len() <= MAX_FOUND_FILES && is_in_order && found.iter().all(has_found)
}

/// The arguments of the call that reads a file that a pattern has found; `None` while what it has found is not at hand.
pub(super) fn arguments(
    execution: &Execution,
    step: StepKey,
    [place, index]: [usize; 2],
    blobs: &dyn Blobs,
) -> Option<Result<Value, Failure>> {
    let mut reading = Reading::new(blobs);
    let path = path_of_found(execution, execution.steps[step].items.current(), [place, index], &mut reading);
    reading.done(json!({"path": path}))
}

/// The files that a model is shown with its task, each as far as it could be read, and what is to be said of patterns; `None` while something is not at hand.
pub(super) fn shown(
    execution: &Execution,
    step: StepKey,
    agent: &AgentStep,
    blobs: &dyn Blobs,
) -> Option<Result<Vec<String>, Failure>> {
    let mut reading = Reading::new(blobs);
    let entries = execution.steps[step].items.current();
    let findings = findings(execution, step, agent, &mut reading);
    let mut shown = Vec::new();
    let mut read = in_order(execution, entries).into_iter().enumerate().peekable();
    for of in 0..agent.files().len() {
        while let Some((number, ([_, index], record))) = read.next_if(|(_, ([place, _], _))| *place == of) {
            let path = match agent.pattern(of) {
                Some(_) => path_of_found(execution, entries, [of, index], &mut reading),
                None => path_of_named(execution, step, agent, of, &mut reading),
            };
            let returned = reading.returned(record);
            shown.push(ShownFile::new(number, path, &outcome(record, returned.as_ref())));
        }
        let Some((pattern, listing)) = agent.pattern(of).zip(listing(execution, entries, of)) else { continue };
        let returned = reading.returned(listing);
        let found = returned.as_ref().map_or(0, |returned| found_files(returned).len());
        let is_cut = returned.as_ref().is_some_and(|returned| returned["truncated"] == true);
        let rest = findings.rest.get(&of).map_or(&[][..], Vec::as_slice);
        shown.extend(ShownFile::pattern(pattern, &outcome(listing, returned.as_ref()), found, rest, is_cut));
    }
    reading.done(belay_agent::shown_files(&shown))
}

/// The step that has read the file with this number, of those that the model was shown.
pub(super) fn file_at<'a>(execution: &'a Execution, entries: &[StepKey], number: usize) -> Option<&'a StepRecord> {
    in_order(execution, entries).into_iter().nth(number).map(|(_, record)| record)
}

/// The steps that have read files, as the model is shown these: in the order of the plan, and within a pattern in that of what it has found. Each with its place in both.
fn in_order<'a>(execution: &'a Execution, entries: &[StepKey]) -> Vec<([usize; 2], &'a StepRecord)> {
    let entries = entries.iter().map(|&entry| &execution.steps[entry]);
    let read = entries.filter_map(|record| match record.agent_entry()? {
        AgentEntry::File { place } => Some(([place, 0], record)),
        AgentEntry::Found { place, index } => Some(([place, index], record)),
        _ => None,
    });
    let mut read: Vec<_> = read.collect();
    read.sort_by_key(|(at, _)| *at);
    read
}

/// The step that has found the files of the pattern at this place.
fn listing<'a>(execution: &'a Execution, entries: &[StepKey], place: usize) -> Option<&'a StepRecord> {
    let is_it = |record: &&StepRecord| record.agent_entry() == Some(AgentEntry::Listing { place });
    entries.iter().map(|&entry| &execution.steps[entry]).find(is_it)
}

/// The files in the result of a call that finds some. A person may have given anything as its result.
fn found_files(result: &Value) -> &[Value] {
    result["files"].as_array().map_or(&[], Vec::as_slice)
}

/// The path of a file that a pattern has found.
fn path_of_found(
    execution: &Execution,
    entries: &[StepKey],
    [place, index]: [usize; 2],
    reading: &mut Reading<'_>,
) -> String {
    let found = listing(execution, entries, place).and_then(|listing| reading.returned(listing));
    let path = found.as_ref().and_then(|found| found_files(found).get(index)?.as_str());
    path.unwrap_or_default().to_owned()
}

/// The path of a file that the plan names; empty for one whose path cannot be known: the call that was to read it has failed, and says why.
fn path_of_named(
    execution: &Execution,
    step: StepKey,
    agent: &AgentStep,
    place: usize,
    reading: &mut Reading<'_>,
) -> String {
    let Some(file) = agent.files().get(place) else { return String::new() };
    match resolved(execution, step, &file.arguments, reading.blobs) {
        Some(Ok(arguments)) => arguments["path"].as_str().map(str::to_owned).unwrap_or_default(),
        Some(Err(_)) => String::new(),
        None => {
            reading.is_wanted = true;
            String::new()
        }
    }
}

/// The files that the patterns of a step have found and the plan does not name itself, each once.
struct Findings {
    /// The files that the model is shown: the place of the pattern in the plan, and that of the file in what it has found.
    shown: Vec<(usize, usize)>,
    /// The paths that it is not shown, since there are too many, by the place of the pattern.
    rest: BTreeMap<usize, Vec<String>>,
}

fn findings(execution: &Execution, step: StepKey, agent: &AgentStep, reading: &mut Reading<'_>) -> Findings {
    let entries = execution.steps[step].items.current();
    let named = (0..agent.files().len()).filter(|place| agent.pattern(*place).is_none());
    let named = named.map(|place| path_of_named(execution, step, agent, place, reading));
    let mut seen: BTreeSet<String> = named.map(|path| spelled(&path)).collect();
    let mut findings = Findings { shown: Vec::new(), rest: BTreeMap::new() };
    for place in 0..agent.files().len() {
        let Some(result) = listing(execution, entries, place).and_then(|listing| reading.returned(listing)) else {
            continue;
        };
        for (index, path) in found_files(&result).iter().enumerate() {
            let Some(path) = path.as_str().filter(|path| seen.insert(spelled(path))) else { continue };
            if findings.shown.len() < MAX_FOUND_FILES {
                findings.shown.push((place, index));
            } else {
                findings.rest.entry(place).or_default().push(path.to_owned());
            }
        }
    }
    findings
}

/// A path as `find_files` spells it, for whatever a plan calls the same file.
fn spelled(path: &str) -> String {
    let inside = path.strip_prefix("/workspace").filter(|inside| inside.starts_with('/')).unwrap_or(path);
    let mut names = Vec::new();
    for name in inside.split('/') {
        match name {
            "" | "." => {}
            ".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    names.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        BlobRef, Body, DecideContext, OperationEnd, OperationEvent, Payload, Receipt, StepEvent, Timestamp,
        ToolCallEnd, test_support::started,
    };

    const NOW: Timestamp = Timestamp::from_micros(5);

    /// A step whose plan names a path and two patterns, before the entries are listed that follow the first so many of these three, and what is decided to follow. The second pattern has this
    /// result.
    fn after(ended: usize, found: Payload) -> (Execution, Vec<Value>) {
        let plan = "{id: p, steps: [{id: a, agent: {model: m, task: x, tools: [t], files: [a.md, 'x/*', 'y/*']}}]}";
        let mut execution = started(plan, NOW);
        let of_path: Payload = Json::from_text(r#"{"content": ""}"#).into();
        let of_pattern = Json::from_text(r#"{"files": ["x/1", "a.md", "x/2"], "truncated": false}"#).into();
        for result in [of_path, of_pattern, found].into_iter().take(ended) {
            let call = execution.operations().next().expect("a call is in flight").key;
            let end = ToolCallEnd::Completed { result, receipt: Box::new(Receipt::default()) };
            let event = OperationEvent::Ended(OperationEnd::ToolCall(end));
            execution.record(NOW, None, Body::Operation { id: execution.operation_id(call), event }).unwrap();
            let mut before = execution.clone();
            for event in execution.advance(DecideContext { now: NOW, ledger_id: "l" }) {
                if let Body::Step { event: StepEvent::ItemsListed { items, .. }, .. } = &event.body {
                    return (before, items.iter().map(Json::value).collect());
                }
                before.apply(&event).unwrap();
            }
        }
        (execution, Vec::new())
    }

    fn may_list(execution: &Execution, first: usize, items: &[Value]) -> bool {
        let record = &execution.steps[execution.steps.key("a").expect("the plan has it")];
        let agent = record.spec.agent().expect("it has a goal");
        let items: Vec<Json> = items.iter().map(Json::canonical).collect();
        super::super::may_list(execution, record, agent, first, &items)
    }

    fn found(place: usize, index: usize) -> Value {
        json!({"listing": place, "found": index, "run": 1})
    }

    // Only the whole of what the plan names comes first, and after its end only what was found, in order.
    #[test]
    fn no_other_entries_are_listed_before_the_first_turn() {
        let two = || Json::from_text(r#"{"files": ["y/1", "x/2"], "truncated": false}"#).into();
        let (execution, decided) = after(3, two());
        let right = [found(1, 0), found(1, 2), found(2, 0)];
        assert_eq!(decided, right, "each file once");
        assert!(may_list(&execution, 3, &right));
        let turn = json!({"turn": 1, "run": 1});
        assert!(may_list(&execution, 3, std::slice::from_ref(&turn)), "a later version may show others");
        let wrong: [(usize, &[Value]); 14] = [
            (3, &[]),
            (0, &right),
            (2, &right),
            (4, &right),
            (3, &[found(1, 0), found(1, 0)]),
            (3, &[found(2, 0), found(1, 0)]),
            (3, &[found(1, 3)]),
            (3, &[found(2, 2)]),
            (3, &[found(0, 0)]),
            (3, &[found(3, 0)]),
            (3, &[found(1, 0), turn.clone()]),
            (3, &[json!({"listing": 1, "run": 1})]),
            (3, &[json!({"turn": 2, "run": 1})]),
            (3, &[json!({"turn": 1, "call": 0, "tool": "t", "run": 1})]),
        ];
        for (first, items) in wrong {
            assert!(!may_list(&execution, first, items), "{items:?} after {first}");
        }
        let (execution, _) = after(2, two());
        assert!(!may_list(&execution, 3, &[found(1, 0)]), "the other pattern is still looked for");
        assert!(!may_list(&execution, 3, &[turn]), "and no turn begins");
        // What a large result holds is not in the events.
        let blob = Payload::Blob(BlobRef { digest: "sha256:x".into(), size: 1, redacted: false });
        let (execution, decided) = after(3, blob);
        assert_eq!(decided, [Value::Null; 0]);
        assert!(may_list(&execution, 3, &[found(1, 0), found(2, MOST_FOUND - 1)]));
        assert!(!may_list(&execution, 3, &[found(2, MOST_FOUND)]));
        let many: Vec<Value> = (0..=MAX_FOUND_FILES).map(|index| found(2, index)).collect();
        assert!(may_list(&execution, 3, &many[1..]) && !may_list(&execution, 3, &many));
    }

    // The first list is that of the plan, each entry of its kind.
    #[test]
    fn what_the_plan_names_is_listed_first() {
        let mut execution = started("{id: p, steps: [{id: a, tool: t}, {id: b, tool: t}]}", NOW);
        let plan = "{id: p, steps: [{id: a, agent: {model: m, task: x, files: [a.md, 'x/*']}}]}";
        let other = started(plan, NOW);
        let record = &other.steps[other.steps.key("a").expect("the plan has it")];
        let key = execution.steps.key("a").expect("the plan has it");
        execution.replace_spec(key, &record.spec);
        let [file, listing] = [json!({"file": 0, "run": 1}), json!({"listing": 1, "run": 1})];
        assert!(may_list(&execution, 0, &[file.clone(), listing.clone()]));
        let wrong: [&[Value]; 7] = [
            std::slice::from_ref(&file),
            &[listing.clone(), file.clone()],
            &[file.clone(), listing.clone(), found(1, 0)],
            &[file.clone(), found(1, 0)],
            &[file.clone(), json!({"file": 1, "run": 1})],
            &[json!({"listing": 0, "run": 1}), listing],
            &[json!({"turn": 1, "run": 1})],
        ];
        for items in wrong {
            assert!(!may_list(&execution, 0, items), "{items:?}");
        }
    }

    #[test]
    fn a_file_is_the_same_however_a_plan_spells_it() {
        for path in ["a/b", "./a/b", "a//b", "a/./b", "a/c/../b", "/workspace/a/b"] {
            assert_eq!(spelled(path), "a/b", "{path}");
        }
        assert_eq!(["/workspaces/a", "a/b/..", "é"].map(spelled), ["workspaces/a", "a", "é"]);
    }
}
