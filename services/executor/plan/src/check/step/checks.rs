//! Conditions, files and commands that are checked before and after a step's call.

use super::{call_part::CallPart, part::CheckPart};
use crate::{
    CheckDraft, StepDraft, StepKindDraft, Template,
    check::Checker,
    limits::{MAX_ARGUMENT_BYTES, MAX_CHECKS},
    path::FieldPath,
    plan::{CRITERION, call_of},
    template::json_size,
};

impl Checker<'_> {
    pub(super) fn checks_before(&mut self, path: &FieldPath, step: &StepDraft) -> Vec<CheckPart> {
        for (place, _) in step.preconditions.iter().enumerate().filter(|(_, check)| !check.judge.is_empty()) {
            self.rule(&path.index(place).key("judge"), || {
                "judges what the step has come to, which is not there before: make it one of the `postconditions`"
                    .to_owned()
            });
        }
        let mut parts = self.checks(path, &step.preconditions, step);
        // It is refused once.
        parts.iter_mut().filter(|part| matches!(part, CheckPart::Judge(_))).for_each(|part| *part = CheckPart::Unread);
        parts
    }

    pub(super) fn checks(&mut self, path: &FieldPath, checks: &[CheckDraft], step: &StepDraft) -> Vec<CheckPart> {
        if checks.len() > MAX_CHECKS {
            self.rule(path, || format!("has {} checks and the limit is {MAX_CHECKS}", checks.len()));
        }
        checks.iter().enumerate().map(|(place, check)| self.check(&path.index(place), check, step)).collect()
    }

    fn check(&mut self, path: &FieldPath, check: &CheckDraft, step: &StepDraft) -> CheckPart {
        let given = [&check.condition, &check.file, &check.judge].map(|text| !text.is_empty());
        let given = given.into_iter().chain([!check.command.is_empty()]);
        if given.filter(|is_given| *is_given).count() != 1 {
            self.refuse(path, || {
                "must say one thing: {condition: …}, {file: PATH}, {command: [PROGRAM, ARGUMENT, …]} or {judge: CRITERION}".to_owned()
            });
            return CheckPart::Unread;
        }
        if !check.judge.is_empty() && !matches!(step.kind, StepKindDraft::Agent { .. }) {
            self.rule(&path.key("judge"), || {
                "is for steps with a goal, whose model is told what is missing: remove it, or let a step with `agent` judge the result of this one".to_owned()
            });
        }
        if !check.judge.is_empty() && belay_text::is_blank(&check.judge) {
            self.rule(&path.key("judge"), || "says nothing: write what has to be true of the result".to_owned());
        }
        if check.judge.is_empty() && !check.model.is_empty() {
            self.rule(&path.key("model"), || "is for `judge`: remove it".to_owned());
        }
        let Some((_, arguments)) = call_of(check, step) else {
            let condition = self.condition(&path.key("condition"), &check.condition);
            return condition.map_or(CheckPart::Unread, CheckPart::Condition);
        };
        let (arguments, errors) = Template::read(&arguments, &[]);
        let arguments_are_valid = errors.is_empty();
        // Those of the task stand at the task.
        for error in errors.into_iter().filter(|error| check.judge.is_empty() || error.field.begins_with(CRITERION)) {
            // The author writes a path, a criterion or a command, and no arguments.
            let field = match (check.file.is_empty(), check.judge.is_empty()) {
                (false, _) => path.key("file"),
                (true, false) => path.key("judge"),
                (true, true) => path.join(&error.field),
            };
            self.refuse(&field, || error.message);
        }
        let written = if check.judge.is_empty() { arguments.source() } else { &arguments.source()[CRITERION] };
        let size = json_size(written);
        if size > MAX_ARGUMENT_BYTES {
            self.rule(path, || {
                format!("has {size} bytes as JSON and the limit is {MAX_ARGUMENT_BYTES}: put the content into a file")
            });
        }
        let call = CallPart { has_tool: true, arguments, arguments_are_valid };
        match (check.file.is_empty(), check.judge.is_empty()) {
            (false, _) => CheckPart::File(call),
            (true, false) => CheckPart::Judge(call),
            (true, true) => CheckPart::Command(call),
        }
    }
}
