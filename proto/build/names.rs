//! The names of generated Rust items, as prost chooses them.

/// The Rust path of a message: `belay.v1.Approval` is `crate::v1::Approval`, and a message in it is in the module `approval`.
pub(crate) fn path(full_name: &str) -> String {
    let mut parts: Vec<String> = full_name.split('.').skip(1).map(str::to_owned).collect();
    let last = parts.len() - 1;
    for part in &mut parts[..last] {
        *part = ident(&snake(part));
    }
    format!("crate::{}", parts.join("::"))
}

/// `StepStarted` as `step_started`.
fn snake(name: &str) -> String {
    let mut snake = String::new();
    for (at, letter) in name.char_indices() {
        if letter.is_ascii_uppercase() && at > 0 {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

/// `step_started` as `StepStarted`.
pub(crate) fn camel(name: &str) -> String {
    let word = |word: &str| word[..1].to_ascii_uppercase() + &word[1..];
    name.split('_').map(word).collect()
}

/// A name that may be a keyword of Rust.
pub(crate) fn ident(name: &str) -> String {
    let is_keyword = ["type", "match", "ref", "use", "move", "where", "in", "for", "if", "loop", "mod"].contains(&name);
    if is_keyword { format!("r#{name}") } else { name.to_owned() }
}
