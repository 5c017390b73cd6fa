//! Asks a model's server what it can do.

use belay_model::{Check, Found, ModelCheck, Question};

use super::ConfiguredModel;

/// Asks the next question, and says what its answer shows; `None` at the end. `now` is in seconds since the Unix epoch.
pub(crate) async fn check(of: &ConfiguredModel, so_far: &mut ModelCheck, now: i64) -> Option<Vec<Check>> {
    let question = so_far.next()?;
    let found = match question {
        Question::List => Found::List(of.list(now).await),
        Question::Call | Question::Schema | Question::Sample | Question::Window => {
            let asked = of.ask(&so_far.prompt(of.model(), question), now, &|_| {}).await;
            Found::Answer(question, asked.map(|asked| (asked.answer, asked.parts, asked.request_bytes)))
        }
    };
    Some(so_far.take(of.model(), &found))
}
