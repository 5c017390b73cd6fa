//! Models on the screen.

use belay_proto::v1::{Model, ModelCheck, ModelUsage, model::Price, model_check::State};

use super::{
    text::{Line, Style, table},
    words,
};

/// The name without its collection.
pub(crate) fn id(model: &Model) -> &str {
    model.name.strip_prefix("models/").unwrap_or(&model.name)
}

/// A table of models.
pub(crate) fn list(models: &[Model]) -> Vec<Line> {
    let rows = models.iter().map(|model| {
        let place = match (model.unavailable_reason.is_empty(), model.local) {
            (false, _) => format!("not asked: {}", model.unavailable_reason),
            (true, true) => "on this machine".to_owned(),
            (true, false) => "elsewhere".to_owned(),
        };
        vec![
            (Style::Strong, id(model).to_owned()),
            (Style::Plain, model.served_model.clone()),
            (Style::Plain, model.base_url.clone()),
            (Style::Plain, format!("{} tokens", model.window_tokens)),
            (Style::Plain, model.price.as_ref().map(price).unwrap_or_default()),
            (if model.unavailable_reason.is_empty() { Style::Dim } else { Style::Warn }, place),
        ]
    });
    table(&rows.collect::<Vec<_>>())
}

/// The line above the findings about a model.
pub(crate) fn heading(model: &Model) -> Line {
    let api = words::word(model.api().as_str_name(), "API_");
    let about = format!("  {} at {}, {api}", model.served_model, model.base_url);
    Line::default().and(Style::Strong, id(model)).and(Style::Plain, about)
}

/// A finding, and what to do about it.
pub(crate) fn check(check: &ModelCheck) -> Vec<Line> {
    let mark = match check.state() {
        State::Passed => (Style::Good, "ok"),
        State::Warning => (Style::Warn, "weak"),
        State::Failed => (Style::Bad, "NO"),
        State::Skipped | State::Unspecified => (Style::Dim, "?"),
    };
    let line = |(style, mark): (Style, &str), name: &str, words: Style, text: &str| {
        let line = Line::new("  ").column(style, mark, 6).column(Style::Plain, name, 12);
        line.and(words, text).hanging(20)
    };
    let seen = line(mark, &check.check, Style::Plain, &check.message);
    let advice = (!check.advice.is_empty()).then(|| line((Style::Plain, ""), "", Style::Dim, &check.advice));
    std::iter::once(seen).chain(advice).collect()
}

/// The tokens and the cost of all questions.
pub(crate) fn usage(usage: &ModelUsage) -> Line {
    let cost = usage.cost_micros.map(|cost| format!(", {}", words::dollars(cost))).unwrap_or_default();
    let text = format!("  used: {} tokens in, {} out{cost}", usage.input_tokens, usage.output_tokens);
    Line::default().and(Style::Dim, text)
}

/// A price, for a million tokens.
fn price(price: &Price) -> String {
    format!("{} in, {} out", words::dollars(price.input_micros), words::dollars(price.output_micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(lines: &[Line]) -> String {
        lines.iter().map(|line| line.render(false).trim_end().to_owned() + "\n").collect()
    }

    #[test]
    fn models_are_a_table() {
        let price = Price { input_micros: 150_000, cached_input_micros: 0, output_micros: 15_000_000 };
        let local = Model {
            name: "models/coder".to_owned(),
            served_model: "qwen3:8b".to_owned(),
            base_url: "http://127.0.0.1:11434/v1".to_owned(),
            window_tokens: 32_768,
            local: true,
            ..Model::default()
        };
        let hosted = Model {
            name: "models/hosted".to_owned(),
            served_model: "large-1".to_owned(),
            base_url: "https://api.example.com/v1".to_owned(),
            window_tokens: 200_000,
            price: Some(price),
            unavailable_reason: "MODEL_NOT_LOCAL".to_owned(),
            ..Model::default()
        };
        assert_eq!(
            text(&list(&[local, hosted])),
            "  coder   qwen3:8b  http://127.0.0.1:11434/v1   32768 tokens                         on this machine\n  \
               hosted  large-1   https://api.example.com/v1  200000 tokens  $0.15 in, $15.00 out  not asked: MODEL_NOT_LOCAL\n"
        );
    }

    #[test]
    fn findings_have_their_advice_below_them() {
        let finding = |state: State, advice: &str| ModelCheck {
            check: "tool_calls".to_owned(),
            state: state.into(),
            message: "it answered with text".to_owned(),
            advice: advice.to_owned(),
        };
        let lines: Vec<Line> =
            [finding(State::Passed, ""), finding(State::Failed, "try constrained")].iter().flat_map(check).collect();
        assert_eq!(
            text(&lines),
            "  ok    tool_calls  it answered with text\n  NO    tool_calls  it answered with text\n                    try constrained\n"
        );
        let used = ModelUsage { input_tokens: 152, output_tokens: 40, cost_micros: Some(1_200), ..Default::default() };
        assert_eq!(text(&[usage(&used)]), "  used: 152 tokens in, 40 out, $0.0012\n");
    }
}
