//! The calls of a step: tools, arguments, and the resources that they use.

use super::call_part::CallPart;
use crate::{
    CallDraft, Effects, StepDraft, Template,
    check::Checker,
    is_own_tool,
    limits::{
        MAX_ARGUMENT_BYTES, MAX_CALLS, MAX_FALLBACKS, MAX_NETWORK_CHARS, MAX_RESOURCE_CHARS, MAX_RESOURCES,
        MAX_TOOL_CHARS,
    },
    nearest,
    path::{FieldPath, look_alikes, shown},
    template::json_size,
};

impl Checker<'_> {
    /// A call, as far as it can be read; `path` is the object that has it.
    pub(super) fn call(
        &mut self,
        path: &FieldPath,
        tool: &str,
        arguments: &serde_json::Value,
        verbatim: &[String],
    ) -> CallPart {
        let has_tool = self.tool(&path.key("tool"), tool);
        self.verbatim(&path.key("verbatim"), verbatim, arguments);
        let (arguments, arguments_are_valid) = self.arguments(&path.key("arguments"), arguments, verbatim);
        CallPart { has_tool, arguments, arguments_are_valid }
    }

    /// The calls that a step makes side by side.
    pub(super) fn listed_calls(
        &mut self,
        path: &FieldPath,
        step: &StepDraft,
        calls: &[CallDraft],
        effects: Effects,
    ) -> Vec<CallPart> {
        let not_for_several = [
            ("for_each", step.for_each.is_some(), "remove it, or let the step call one tool"),
            ("fallback", !step.fallback.is_empty(), "remove it, or make the call a step of its own"),
            ("compensate", step.compensate.is_some(), "remove it, or make what has to be undone a step of its own"),
            ("verbatim", !step.verbatim.is_empty(), "give it to the call whose argument it names"),
        ];
        for (field, _, way_out) in not_for_several.into_iter().filter(|(_, is_set, _)| *is_set) {
            self.rule(&path.key(field), || {
                format!("is for steps with one call of their own, and this one has `calls`: {way_out}")
            });
        }
        // They would look at the workspace, which has nothing of the step before it is committed.
        let not_for_one_effect =
            [("preconditions", !step.preconditions.is_empty()), ("postconditions", !step.postconditions.is_empty())];
        for (field, _) in not_for_one_effect.into_iter().filter(|(_, is_set)| effects == Effects::PerStep && *is_set) {
            self.rule(&path.key(field), || {
                "is for calls that commit their own effects, and this step has `effects: per_step`: let a step before or after this one check it"
                    .to_owned()
            });
        }
        let field = path.key("calls");
        if calls.is_empty() {
            self.rule(&field, || "has no call: add one, such as {tool: NAME, arguments: {…}}".to_owned());
        }
        if calls.len() > MAX_CALLS {
            self.rule(&field, || {
                format!(
                    "has {} calls and the limit is {MAX_CALLS}: make two steps of them, or use `for_each`",
                    calls.len()
                )
            });
        }
        let calls = calls.iter().enumerate();
        calls
            .map(|(place, CallDraft { tool, arguments, verbatim })| {
                self.call(&field.index(place), tool, arguments, verbatim)
            })
            .collect()
    }

    pub(super) fn fallback(&mut self, path: &FieldPath, fallback: &[CallDraft]) -> Vec<CallPart> {
        if fallback.len() > MAX_FALLBACKS {
            self.rule(path, || format!("has {} calls and the limit is {MAX_FALLBACKS}", fallback.len()));
        }
        let calls = fallback.iter().enumerate();
        calls
            .map(|(place, CallDraft { tool, arguments, verbatim })| {
                self.call(&path.index(place), tool, arguments, verbatim)
            })
            .collect()
    }

    /// Whether a tool can have this name.
    pub(super) fn tool(&mut self, path: &FieldPath, tool: &str) -> bool {
        if is_own_tool(tool) {
            self.rule(path, || {
                format!(
                    "`{tool}` is called by steps with `agent` alone: write `agent: {{model: NAME, task: …}}` instead"
                )
            });
        } else if tool.is_empty() {
            self.rule(path, || "is required: name the tool that the step calls".to_owned());
        } else if tool.chars().count() > MAX_TOOL_CHARS
            || tool.contains(|c: char| !belay_text::is_plain(c) || c.is_whitespace())
        {
            self.rule(path, || {
                format!(
                    "`{}` is not a tool's name: it has 1 to {MAX_TOOL_CHARS} characters and no spaces{}",
                    shown(tool),
                    look_alikes(tool)
                )
            });
        } else {
            return true;
        }
        false
    }

    fn verbatim(&mut self, path: &FieldPath, verbatim: &[String], arguments: &serde_json::Value) {
        let Some(arguments) = arguments.as_object() else { return };
        for (entry, name) in verbatim.iter().enumerate().filter(|(_, name)| !arguments.contains_key(name.as_str())) {
            self.rule(&path.index(entry), || {
                let near = nearest(name, arguments.keys().map(String::as_str));
                let did_you_mean = near.map(|near| format!("; did you mean `{}`?", shown(near))).unwrap_or_default();
                format!("the step has no argument `{}`{did_you_mean}", shown(name))
            });
        }
    }

    /// The arguments as far as they can be read, and whether they are valid.
    fn arguments(&mut self, path: &FieldPath, arguments: &serde_json::Value, verbatim: &[String]) -> (Template, bool) {
        self.object(path, arguments, verbatim, "must be an object with the tool's arguments by name")
    }

    /// An object with templates as far as it can be read, and whether it is valid.
    pub(in crate::check) fn object(
        &mut self,
        path: &FieldPath,
        arguments: &serde_json::Value,
        verbatim: &[String],
        what: &str,
    ) -> (Template, bool) {
        if !arguments.is_object() {
            self.refuse(path, || what.to_owned());
            return (Template::read(&serde_json::Value::Null, &[]).0, false);
        }
        let size = json_size(arguments);
        if size > MAX_ARGUMENT_BYTES {
            self.rule(path, || {
                format!("has {size} bytes as JSON and the limit is {MAX_ARGUMENT_BYTES}: put the content into a file and pass its path")
            });
        }
        let (template, errors) = Template::read(arguments, verbatim);
        let is_valid = errors.is_empty();
        for error in errors {
            self.refuse(&path.join(&error.field), || error.message);
        }
        (template, is_valid)
    }

    /// Checks the name of a network profile. Which profiles there are, only the runner's operator knows.
    pub(in crate::check) fn network(&mut self, path: &FieldPath, network: Option<&str>) {
        let Some(name) = network else { return };
        let is_name = name.starts_with(|c: char| c.is_ascii_alphanumeric())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
        if !is_name || name.len() > MAX_NETWORK_CHARS {
            self.rule(path, || {
                format!(
                    "must be the name of a network profile, such as `registries`: 1 to {MAX_NETWORK_CHARS} letters, digits, `-`, `_` and `.`, \
                     beginning with a letter or a digit"
                )
            });
        }
    }

    pub(super) fn resources(&mut self, path: &FieldPath, resources: &[String]) {
        if resources.len() > MAX_RESOURCES {
            self.rule(path, || format!("names {} resources and the limit is {MAX_RESOURCES}", resources.len()));
        }
        for (place, name) in resources.iter().enumerate() {
            self.resource(&path.index(place), name);
        }
    }

    /// The name of a resource.
    pub(in crate::check) fn resource(&mut self, path: &FieldPath, name: &str) {
        let allowed = |c: char| belay_text::is_plain(c) && !c.is_whitespace();
        if name.is_empty() || name.chars().count() > MAX_RESOURCE_CHARS || !name.chars().all(allowed) {
            self.rule(path, || {
                format!(
                    "`{}` is not the name of a resource: it has 1 to {MAX_RESOURCE_CHARS} characters and no spaces{}",
                    shown(name),
                    look_alikes(name)
                )
            });
        }
    }
}
