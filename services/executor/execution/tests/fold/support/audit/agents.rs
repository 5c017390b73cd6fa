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
        let before = known.iter().filter_map(|step| self.agent_item(*step)).filter(turns).count();
        if first == 0 && !agent.files().is_empty() {
            let read: Vec<_> = values.iter().map(|value| value["file"].as_u64()).collect();
            let all: Vec<_> = (0..agent.files().len() as u64).map(Some).collect();
            return assert_eq!(read, all, "step {list} reads its files first");
        }
        assert!(!values.is_empty() && (first > 0 || turns(&values[0])), "step {list} begins with its first turn");
        assert!(!values.iter().any(turns) || values.len() == 1, "a turn of step {list} is not alone");
        assert!(!turns(&values[0]) || before < agent.max_turns() as usize, "step {list} has too many turns");
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
