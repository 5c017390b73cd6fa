//! Steps with a goal.

use belay_execution::Json;
use belay_plan::{COMMIT_TOOL, COMPLETION_TOOL, REBASE_TOOL};

use super::Audit;

impl Audit {
    /// The entry of a step with a goal, as it was listed.
    pub(super) fn agent_item(&self, step: usize) -> Option<serde_json::Value> {
        self.is_of_agent(step).then(|| self.values[&step].value())
    }

    /// The files that a model is shown are read before its first turn, all of them. A turn is alone, and no turn is asked for before the calls of the one before have ended; no more turns than
    /// there may be.
    pub(super) fn check_agent_items(&self, list: usize, first: usize, items: &[Json]) {
        let agent = self.spec(list).agent().expect("it has a goal");
        let turns = |of: &serde_json::Value| of["turn"].is_number() && of["tool"].is_null();
        let values: Vec<serde_json::Value> = items.iter().map(Json::value).collect();
        let known = self.current(list).unwrap_or_default();
        let mut asked = known.iter().rev().filter_map(|step| Some((*step, self.agent_item(*step)?)));
        let last = asked.find(|(_, item)| turns(item));
        if first == 0 && !agent.files().is_empty() {
            let read: Vec<_> = values.iter().map(|value| value["file"].as_u64()).collect();
            let all: Vec<_> = (0..agent.files().len() as u64).map(Some).collect();
            return assert_eq!(read, all, "step {list} reads its files first");
        }
        assert!(!values.is_empty() && (first > 0 || turns(&values[0])), "step {list} begins with its first turn");
        assert!(!values.iter().any(turns) || values.len() == 1, "a turn of step {list} is not alone");
        if turns(&values[0]) {
            let of = |item: &serde_json::Value| (item["turn"].as_u64().unwrap(), item["model"].as_u64().unwrap_or(0));
            let next = match last.map(|(step, item)| (self.completed.contains(&step), of(&item))) {
                None => (1, 0),
                Some((true, (turn, model))) => (turn + 1, model),
                // The next model is asked the same.
                Some((false, (turn, model))) => (turn, model + 1),
            };
            assert_eq!(of(&values[0]), next, "step {list} asks something else");
            assert!(next.0 <= agent.max_turns().into(), "step {list} has too many turns");
            assert!(next.1 < agent.models().len() as u64, "step {list} has no such model");
        }
        let may_call = |value: &serde_json::Value| {
            let tool = value["tool"].as_str().expect("it names one");
            let is_own =
                tool == COMPLETION_TOOL || [COMMIT_TOOL, REBASE_TOOL].contains(&tool) && agent.commit().is_some();
            is_own || agent.tools().iter().any(|offered| offered.tool == tool)
        };
        assert!(
            values.iter().all(|value| turns(value) || may_call(value)),
            "step {list} calls what it was not offered"
        );
    }
}
