//! Steps with a goal.

use belay_execution::{Json, OperationId};
use belay_plan::{COMMIT_TOOL, COMPLETION_TOOL, REBASE_TOOL, limits::MAX_FOUND_FILES};

use super::Audit;

impl Audit {
    /// The entry of a step with a goal, as it was listed.
    pub(super) fn agent_item(&self, step: usize) -> Option<serde_json::Value> {
        self.is_of_agent(step).then(|| self.values[&step].value())
    }

    /// Whether it drops what of the changes of a step conflicts with what others have done.
    pub(super) fn rebases(&self, step: usize) -> bool {
        self.agent_item(step).is_some_and(|item| item["tool"] == REBASE_TOOL)
    }

    /// The model that a turn asks.
    pub(super) fn asked_model(&self, id: &OperationId) -> String {
        let step = self.step_of(id);
        let place = self.agent_item(step).expect("it is a turn")["model"].as_u64().unwrap_or(0);
        let agent = self.spec(step).agent().expect("a model works in it");
        agent.models().nth(usize::try_from(place).expect("a small number")).expect("it has such a model").to_owned()
    }

    /// Whether the model of a step that is done has asked for verification.
    pub(super) fn asks_for_verification(&self) -> bool {
        let asks = |step: &usize| self.agent_item(*step).is_some_and(|item| item["verify"] == true);
        let steps: Vec<usize> = self.completed.iter().copied().collect();
        steps.iter().any(asks)
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
        let carried = self.carried.get(&list);
        if first == 0 && carried.is_some_and(|(_, has_layers)| *has_layers) {
            let takes_over = matches!(&values[..], [item] if item["tool"] == REBASE_TOOL && item["carried"] == true);
            return assert!(takes_over, "step {list} does not take over first what was changed: {values:?}");
        }
        if first == 0 && !agent.files().is_empty() && carried.is_none() {
            let fields = |place| if agent.pattern(place).is_some() { "listing" } else { "file" };
            let read = |(place, value): (usize, &serde_json::Value)| value[fields(place)] == place;
            let is_all = values.len() == agent.files().len() && values.iter().all(|value| value["found"].is_null());
            return assert!(
                is_all && values.iter().enumerate().all(read),
                "step {list} reads its files first: {values:?}"
            );
        }
        if values.iter().any(|value| value["found"].is_u64()) {
            let found = |value: &serde_json::Value| Some((value["listing"].as_u64()?, value["found"].as_u64()?));
            let found: Option<Vec<(u64, u64)>> = values.iter().map(found).collect();
            let found = found.expect("only what patterns have found is read then");
            assert!(found.is_sorted_by(|one, next| one < next) && found.len() <= MAX_FOUND_FILES, "{found:?}");
            let has_listed = |(place, _): &(u64, u64)| {
                let is_it = |step: &&usize| self.agent_item(**step).is_some_and(|item| item["listing"] == *place);
                known.iter().find(is_it).is_some_and(|step| self.completed.contains(step))
            };
            return assert!(first == agent.files().len() && found.iter().all(has_listed), "step {list}: {found:?}");
        }
        assert!(!values.is_empty() && (first > 0 || turns(&values[0])), "step {list} begins with its first turn");
        assert!(!values.iter().any(turns) || values.len() == 1, "a turn of step {list} is not alone");
        if turns(&values[0]) {
            let of = |item: &serde_json::Value| (item["turn"].as_u64().unwrap(), item["model"].as_u64().unwrap_or(0));
            let next = match last.map(|(step, item)| (self.completed.contains(&step), of(&item))) {
                None => {
                    let has_taken_over = known.first().is_none_or(|entry| self.completed.contains(entry));
                    assert!(carried.is_none() || has_taken_over, "step {list} goes on without what was changed");
                    (carried.map_or(0, |(turns, _)| u64::from(*turns)) + 1, 0)
                }
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
