//! `belay schedules list`.

use belay_proto::v1::{ListSchedulesRequest, ListSchedulesResponse, Schedule};

use super::ask;
use crate::{
    args::help,
    commands::listing::{Extent, print, wanted},
    context::Context,
    exit::Exit,
    failure::Failure,
    names,
    render::schedule,
};

/// List the schedules of a namespace, with the next time of each
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay schedules list"))]
pub(crate) struct List {
    #[command(flatten)]
    extent: Extent,
}

/// Lists them.
pub(crate) async fn list(context: &Context, verb: List) -> Result<Exit, Failure> {
    let found = ask(context, async |client, _| {
        wanted(&verb.extent, async |page_size, page_token| {
            let parent = names::parent(&context.namespace);
            let page = client.list_schedules(ListSchedulesRequest { parent, page_size, page_token }).await?;
            let page = page.into_inner();
            Ok((page.schedules, page.next_page_token))
        })
        .await
    });
    let whole = |schedules: Vec<Schedule>, next_page_token| ListSchedulesResponse { schedules, next_page_token };
    let nothing = || format!("namespace {} has no schedules", context.namespace);
    print(context, found.await?, whole, schedule::list, nothing, &[])
}
