//! A question before something is destroyed. Only `y` or `yes` confirms.

use belay_reasons as reasons;

use super::terminal::{Terminal, is_attended};
use crate::{
    failure::{Failure, Report},
    render::text::{Line, Style},
    screen::Screen,
};

/// Asks once. Returns whether the person confirmed.
///
/// # Errors
/// When no person can be asked: `--yes` confirms then.
pub(crate) async fn confirm(screen: Screen, question: &str) -> Result<bool, Failure> {
    if !is_attended() {
        let message = "no terminal to ask on; --yes does it without asking";
        return Err(Report::new(reasons::NO_TERMINAL, message).into());
    }
    let mut terminal = Terminal::default();
    terminal.forget_typed();
    screen.say(&Line::default().and(Style::Warn, format!("{question} [y/N]")));
    Ok(terminal.line().await.is_some_and(|line| is_yes(&line)))
}

fn is_yes(line: &str) -> bool {
    matches!(line.trim().to_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_yes_confirms() {
        assert!(["y", "Y", " yes ", "YES\t"].iter().all(|line| is_yes(line)));
        assert!(["", " ", "n", "no", "yy", "yes please", "a", "1"].iter().all(|line| !is_yes(line)));
    }
}
