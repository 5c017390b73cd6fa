//! The limits that a plan puts on its executions.

use std::time::Duration;

use serde_json::Value;

use super::Checker;
use crate::{
    LimitDraft, Plan, Template, WhenFull,
    limit::{ExecutionLimit, LimitBound, StartRate, key_problem},
    limits::{MAX_AT_ONCE, MAX_EXECUTION_LIMITS, MAX_RATE_WINDOW},
    path::{FieldPath, shown},
};

impl Checker<'_> {
    /// The limits, as far as they can be read.
    pub(super) fn execution_limits(&mut self, drafts: &[LimitDraft]) -> Vec<ExecutionLimit> {
        let path = FieldPath::root().key("limits");
        if drafts.len() > MAX_EXECUTION_LIMITS {
            self.rule(&path, || format!("has {} entries and the limit is {MAX_EXECUTION_LIMITS}", drafts.len()));
        }
        let mut limits: Vec<ExecutionLimit> = Vec::with_capacity(drafts.len());
        for (place, draft) in drafts.iter().enumerate() {
            let path = path.index(place);
            if let Some(earlier) =
                drafts[..place].iter().position(|limit| limit.key == draft.key && !limit.key.is_empty())
            {
                self.rule(&path.key("key"), || {
                    format!("is the key of limits[{earlier}] as well: give each limit a key of its own, or remove one")
                });
            }
            limits.extend(self.execution_limit(&path, draft));
        }
        limits
    }

    /// Refuses a plan of a step, in this field, that would wait for a limit which the plan around it holds.
    pub(super) fn limits_of_inner(&mut self, field: &FieldPath, limits: &[ExecutionLimit], inner: &Plan) {
        if let Some(key) = held_by_both(limits, inner) {
            self.rule(&field.key("limits"), || {
                format!(
                    "the plan around it holds the limit `{}` until it ends, so that it would wait for it in vain: give one of them another key",
                    shown(key)
                )
            });
        }
    }

    fn execution_limit(&mut self, path: &FieldPath, draft: &LimitDraft) -> Option<ExecutionLimit> {
        let bound = self.bound(path, draft);
        let key = self.limit_key(&path.key("key"), &draft.key);
        if draft.when_full == WhenFull::CancelOlder && draft.rate.is_some() {
            self.rule(&path.key("when_full"), || {
                "cannot be cancel_older beside `rate`, since what has started counts until its window ends: use wait or refuse"
                    .to_owned()
            });
        }
        Some(ExecutionLimit { key: key?, bound: bound?, when_full: draft.when_full })
    }

    fn limit_key(&mut self, path: &FieldPath, key: &str) -> Option<Template> {
        if key.is_empty() {
            self.refuse(path, || {
                "is required: all executions with the same key share the limit, such as `deploy-${inputs.environment}`"
                    .to_owned()
            });
            return None;
        }
        let (template, errors) = Template::read(&Value::from(key), &[]);
        if !errors.is_empty() {
            errors.into_iter().for_each(|error| self.refuse(path, || error.message));
            return None;
        }
        for (_, reference) in template.references() {
            match reference.input() {
                Some(input) => self.input(path, input),
                None => self.refuse(path, || {
                    format!(
                        "`${{{}}}` is not known when the execution starts: a key names inputs alone, such as `${{inputs.environment}}`",
                        shown(&reference.to_string())
                    )
                }),
            }
        }
        if template.is_constant()
            && let Some(problem) = key_problem(key)
        {
            self.rule(path, || problem);
        }
        Some(template)
    }

    fn bound(&mut self, path: &FieldPath, draft: &LimitDraft) -> Option<LimitBound> {
        match (draft.at_once, draft.rate) {
            (Some(at_once), None) => {
                self.count(&path.key("at_once"), at_once);
                Some(LimitBound::AtOnce(at_once))
            }
            (None, Some(rate)) => {
                self.rate(&path.key("rate"), rate);
                Some(LimitBound::Rate(rate))
            }
            (Some(_), Some(_)) => {
                self.refuse(path, || {
                    "has both `at_once` and `rate`: write two limits, each with a key of its own".to_owned()
                });
                None
            }
            (None, None) => {
                self.refuse(path, || {
                    "limits nothing: give it `at_once: 1`, or `rate: {starts: 10, window: 1m}`".to_owned()
                });
                None
            }
        }
    }

    fn rate(&mut self, path: &FieldPath, StartRate { starts, window }: StartRate) {
        self.count(&path.key("starts"), starts);
        if window == Duration::ZERO || window > MAX_RATE_WINDOW {
            self.rule(&path.key("window"), || "must be longer than 0 and at most 31 days, which is 744h".to_owned());
        }
    }

    fn count(&mut self, path: &FieldPath, count: u32) {
        if !(1..=MAX_AT_ONCE).contains(&count) {
            self.rule(path, || format!("must be 1 to {MAX_AT_ONCE}, not {count}"));
        }
    }
}

/// The key of a limit that an execution holds until its end and that the plan of one of its steps has as well, as far as keys do not depend on inputs.
fn held_by_both<'a>(outer: &[ExecutionLimit], inner: &'a Plan) -> Option<&'a str> {
    let held = |limit: &&ExecutionLimit| matches!(limit.bound(), LimitBound::AtOnce(_));
    let keys: Vec<&str> = outer.iter().filter(held).filter_map(ExecutionLimit::constant_key).collect();
    let own =
        inner.limits().iter().filter(held).filter_map(ExecutionLimit::constant_key).find(|key| keys.contains(key));
    own.or_else(|| {
        inner.steps().iter().filter_map(|step| step.kind().plan()).find_map(|plan| held_by_both(outer, plan))
    })
}
