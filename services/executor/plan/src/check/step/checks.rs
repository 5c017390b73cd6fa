//! Conditions, files and commands that are checked before and after a step's call.

use super::{call_part::CallPart, part::CheckPart};
use crate::{
    CheckDraft, Template,
    check::Checker,
    limits::{MAX_ARGUMENT_BYTES, MAX_CHECKS},
    path::FieldPath,
    plan::call_of,
    template::json_size,
};

impl Checker<'_> {
    pub(super) fn checks(&mut self, path: &FieldPath, checks: &[CheckDraft]) -> Vec<CheckPart> {
        if checks.len() > MAX_CHECKS {
            self.rule(path, || format!("has {} checks and the limit is {MAX_CHECKS}", checks.len()));
        }
        checks.iter().enumerate().map(|(place, check)| self.check(&path.index(place), check)).collect()
    }

    fn check(&mut self, path: &FieldPath, check: &CheckDraft) -> CheckPart {
        let given = [!check.condition.is_empty(), !check.file.is_empty(), !check.command.is_empty()];
        if given.into_iter().filter(|is_given| *is_given).count() != 1 {
            self.refuse(path, || {
                "must say one thing: {condition: …}, {file: PATH} or {command: [PROGRAM, ARGUMENT, …]}".to_owned()
            });
            return CheckPart::Unread;
        }
        let Some((_, arguments)) = call_of(check) else {
            let condition = self.condition(&path.key("condition"), &check.condition);
            return condition.map_or(CheckPart::Unread, CheckPart::Condition);
        };
        let (arguments, errors) = Template::read(&arguments, &[]);
        let arguments_are_valid = errors.is_empty();
        for error in errors {
            // The author writes a path or a command, and no arguments.
            let field = if check.file.is_empty() { path.join(&error.field) } else { path.key("file") };
            self.refuse(&field, || error.message);
        }
        let size = json_size(arguments.source());
        if size > MAX_ARGUMENT_BYTES {
            self.rule(path, || {
                format!("has {size} bytes as JSON and the limit is {MAX_ARGUMENT_BYTES}: put the content into a file")
            });
        }
        let call = CallPart { has_tool: true, arguments, arguments_are_valid };
        if check.file.is_empty() { CheckPart::Command(call) } else { CheckPart::File(call) }
    }
}
