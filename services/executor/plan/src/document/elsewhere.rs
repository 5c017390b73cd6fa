//! Fields that stand somewhere else than an author has written them.

/// How to write a field that there is not among these, and is somewhere else; `None` for a word that stands nowhere.
pub(super) fn instead(name: &str, known: &[&str]) -> Option<&'static str> {
    let has = |field: &str| known.contains(&field);
    match name {
        "on" if has("depends_on") => Some("it stands beside a step: write `depends_on: [{step: ID, on: [OUTCOME]}]`"),
        "run_when" if has("step") && has("on") => Some("it is for the whole step: write it beside `depends_on`"),
        "matrix" | "include" | "exclude" if has("for_each") => Some("write `for_each: {matrix: {NAME: [VALUE, …]}}`"),
        "until" | "max" | "delay" if has("repeat") => Some("write `repeat: {until: …, max: …, delay: …}`"),
        "max_attempts" | "backoff" if has("retry") => Some("write `retry: {max_attempts: …, backoff: …}`"),
        "outputs" if has("tool") => {
            Some("a plan has outputs: write them beside its `steps`, and read `${STEP.result}` of this step")
        }
        "outputs" if has("retry") => Some("a plan has outputs: write them beside its `steps`, and read those of steps"),
        "fail_fast" if has("stop_on_error") => {
            Some("write `stop_on_error` for the whole plan, or `fail_fast` on a group of its steps")
        }
        "on_error" if has("max") || has("max_attempts") => Some("it is for the step: write it beside `retry`"),
        _ => None,
    }
}
