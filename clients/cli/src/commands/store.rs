//! `belay store`.

use belay_all_in_one::CheckedStore;
use serde_json::{Value, json};

use crate::{
    args::{Format, help},
    context::Context,
    exit::Exit,
    failure::Failure,
    render::text::{Line, Style},
};

/// Read every row of the stores in the state directory, and name what is damaged
///
/// Works beside a running server, and changes nothing. Ends with 1 when something is damaged.
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay store check --state-dir /var/lib/belay"))]
pub(crate) struct Check {}

/// Checks the stores.
pub(crate) async fn check(context: &Context, _: Check) -> Result<Exit, Failure> {
    let state_dir = context.target.state_dir()?;
    let checked = tokio::task::spawn_blocking(move || belay_all_in_one::check_stores(&state_dir))
        .await
        .map_err(|error| Failure::internal(format!("the check ended early: {error}")))??;
    match context.screen.format {
        Format::Text => context.screen.print(&lines(&checked))?,
        Format::Json | Format::Jsonl => context.screen.print_json(&as_json(&checked))?,
    }
    let is_intact = checked.iter().all(|store| damages(store) == 0);
    Ok(if is_intact {
        Exit::OK
    } else {
        Exit(belay_reasons::find(belay_reasons::STORE_CORRUPT).map_or(1, |reason| reason.exit))
    })
}

fn damages(store: &CheckedStore) -> usize {
    store.report.as_ref().map_or(0, |report| report.rows.len() + report.structure.len())
}

fn lines(checked: &[CheckedStore]) -> Vec<Line> {
    let mut lines = Vec::new();
    for store in checked {
        let (style, state) = match (&store.report, damages(store)) {
            (None, _) => (Style::Dim, "there is none".to_owned()),
            (Some(_), 0) => (Style::Good, "intact".to_owned()),
            (Some(_), 1) => (Style::Bad, "1 place is damaged".to_owned()),
            (Some(_), count) => (Style::Bad, format!("{count} places are damaged")),
        };
        lines.push(Line::default().and(Style::Plain, format!("{}  ", store.path.display())).and(style, state));
        if let Some(report) = &store.report {
            for row in &report.rows {
                let affects = format!("; affected: {}", row.affects);
                let row = format!("  table {}, row {}", row.table, row.key);
                lines.push(Line::default().and(Style::Plain, row).and(Style::Plain, affects));
            }
            lines.extend(report.structure.iter().map(|what| Line::default().and(Style::Plain, format!("  {what}"))));
        }
    }
    if checked.iter().any(|store| damages(store) > 0) {
        let advice = "Damaged data is never used; everything else can be. See `belay explain STORE_CORRUPT`.";
        lines.push(Line::default().and(Style::Warn, advice));
    }
    lines
}

fn as_json(checked: &[CheckedStore]) -> Value {
    let stores = checked.iter().map(|store| {
        let rows = store.report.iter().flat_map(|report| &report.rows);
        let rows: Vec<Value> =
            rows.map(|row| json!({"table": row.table, "key": row.key, "affects": row.affects})).collect();
        let structure: Vec<&String> = store.report.iter().flat_map(|report| &report.structure).collect();
        json!({
            "path": store.path,
            "exists": store.report.is_some(),
            "damagedRows": rows,
            "structure": structure,
        })
    });
    json!({ "stores": stores.collect::<Vec<_>>() })
}
