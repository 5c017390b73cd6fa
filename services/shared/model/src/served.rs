//! The models that a server offers, and their windows where it tells them.

use serde_json::Value;

use crate::{Failure, usage::number};

/// A model that a server offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedModel {
    /// Its name at the server.
    pub id: String,
    /// How many tokens prompt and answer may have together, where the server tells: llama.cpp as `meta.n_ctx`, which is that of one slot, vLLM as
    /// `max_model_len`, OpenRouter as `context_length`, and Anthropic as `max_input_tokens`.
    pub window: Option<u64>,
}

/// Reads the answer to [`list_request`](crate::list_request).
///
/// # Errors
/// [`Failure::Malformed`] when it is no list.
pub fn served(body: &[u8]) -> Result<Vec<ServedModel>, Failure> {
    let malformed = |why: &str| Failure::Malformed { why: format!("the list of models {why}") };
    let value: Value = serde_json::from_slice(body).map_err(|error| malformed(&format!("is not JSON: {error}")))?;
    let list = value.get("data").unwrap_or(&value).as_array().ok_or_else(|| malformed("has no list in `data`"))?;
    let of = |item: &Value| {
        let id = item.get("id").and_then(Value::as_str)?.to_owned();
        let window = number(item, &["/meta/n_ctx", "/max_model_len", "/context_length", "/max_input_tokens"]);
        Some(ServedModel { id, window: window.filter(|window| *window > 0) })
    };
    Ok(list.iter().filter_map(of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_read_as_each_server_tells_them() {
        let body = br#"{"object":"list","data":[
            {"id":"llama.cpp","meta":{"n_ctx":4096,"n_ctx_train":32768}},
            {"id":"vllm","max_model_len":8192},
            {"id":"openrouter","context_length":200000},
            {"id":"ollama","owned_by":"library"},
            {"object":"model"}
        ]}"#;
        let found: Vec<_> = served(body).unwrap().into_iter().map(|model| (model.id, model.window)).collect();
        let expected =
            [("llama.cpp", Some(4096)), ("vllm", Some(8192)), ("openrouter", Some(200_000)), ("ollama", None)];
        assert_eq!(found, expected.map(|(id, window)| (id.to_owned(), window)));
        assert!(matches!(served(b"<html>"), Err(Failure::Malformed { .. })));
        assert!(matches!(served(b"{}"), Err(Failure::Malformed { .. })));
    }
}
