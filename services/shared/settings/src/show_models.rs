//! Lists the models: where each is, and what it costs.

use belay_model::{Model, Price, TimeLimits};
use belay_text::dollars;

use crate::{Row, ValueWithOrigin, size::shown_time};

/// Each model with its server, its bounds and its price.
pub(crate) fn rows(models: &[ValueWithOrigin<Model>]) -> impl Iterator<Item = Row> {
    models.iter().flat_map(of_model)
}

fn of_model(model: &ValueWithOrigin<Model>) -> Vec<Row> {
    let Model { name, api, base_url, model: served, window, max_output, tool_calls, price, limits, credential } =
        &model.value;
    let TimeLimits { first_byte, between_bytes, answer } = limits;
    let none = || "none".to_owned();
    let values = [
        ("api", api.word().to_owned()),
        ("base_url", base_url.to_string()),
        ("model", served.clone()),
        ("window", window.to_string()),
        ("max_output", max_output.to_string()),
        ("tool_calls", tool_calls.word().to_owned()),
        ("price", price.map_or_else(none, shown_price)),
        ("credential", credential.clone().unwrap_or_else(none)),
        ("limits.first_byte", shown_time(first_byte.as_secs())),
        ("limits.between_bytes", shown_time(between_bytes.as_secs())),
        ("limits.answer", shown_time(answer.as_secs())),
    ];
    let row =
        |(key, value): (&str, String)| Row { key: format!("models.{name}.{key}"), value, origin: model.origin.clone() };
    values.map(row).into()
}

/// A price in dollars for a million tokens.
fn shown_price(price: Price) -> String {
    let Price { input, cached_input, output } = price;
    format!("{} in, {} cached, {} out", dollars(input), dollars(cached_input), dollars(output))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_is_shown_as_prices_are_written() {
        let price = Price { input: 3_000_000, cached_input: 12_500, output: 15_500_000 };
        assert_eq!(shown_price(price), "$3.00 in, $0.0125 cached, $15.50 out");
    }
}
