//! docs/errors.md: the table, for people.

use std::fmt::Write as _;

use crate::{ALL, EXIT_CODES, Topic};

const HEAD: &str = "# Errors

Every error ends with its code: `belay explain CODE` shows what stands here, `-o json` has it as `code`, and gRPC as the reason of
`google.rpc.ErrorInfo` (domain `belay.dev`). *Retryable* says whether the same command, request or call may succeed unchanged.

This page is generated from the table in `services/shared/reasons`; `BELAY_UPDATE=1 cargo test -p belay-architecture-tests errors` writes it.

";

/// The whole page.
pub fn page() -> String {
    let mut page = HEAD.to_owned();
    page.push_str("## Exit codes\n\n| code | what it means | what to do |\n|---|---|---|\n");
    for exit in EXIT_CODES {
        // Nothing can fail to be written to a string.
        let _ = writeln!(page, "| {} | {} | {} |", exit.code, exit.what, exit.advice);
    }
    for topic in Topic::ALL {
        let _ = writeln!(page, "\n## {}", topic.title());
        for reason in ALL.iter().filter(|reason| reason.topic == topic) {
            let _ = writeln!(page, "\n### {}\n\n{}\n\n{}\n", reason.name, reason.what, reason.advice);
            let _ = writeln!(page, "{}", facts(reason));
        }
    }
    page
}

/// `exit code 30 · class TRANSIENT · retryable`.
fn facts(reason: &crate::Reason) -> String {
    let mut facts = vec![format!("exit code {}", reason.exit)];
    if !reason.classes.is_empty() {
        let names: Vec<_> = reason.classes.iter().map(|class| class.name()).collect();
        facts.push(format!("class {}", names.join(" or ")));
    }
    if !reason.codes.is_empty() && reason.topic != Topic::Grpc {
        let names: Vec<_> = reason.codes.iter().map(|code| code.name()).collect();
        facts.push(format!("gRPC {}", names.join(" or ")));
    }
    facts.push(if reason.retryable { "retryable" } else { "not retryable" }.to_owned());
    format!("<sub>{}</sub>", facts.join(" · "))
}
