//! `belay namespaces list`.

use belay_proto::v1::{ListNamespacesRequest, ListNamespacesResponse, Namespace};

use crate::{
    args::help,
    commands::listing::{Extent, print, wanted},
    connect::Requirement,
    context::Context,
    exit::Exit,
    failure::Failure,
    render::namespace,
};

/// List the namespaces that have executions, with what they have used of their budgets
#[derive(clap::Args, Debug)]
#[command(after_help = help!("belay namespaces list"))]
pub(crate) struct List {
    #[command(flatten)]
    extent: Extent,
}

/// Lists them.
pub(crate) async fn list(context: &Context, verb: List) -> Result<Exit, Failure> {
    let found = context
        .ask(Requirement::Records, async |client| {
            wanted(&verb.extent, async |page_size, page_token| {
                let request = ListNamespacesRequest { page_size, page_token };
                let page = client.list_namespaces(request).await?.into_inner();
                Ok((page.namespaces, page.next_page_token))
            })
            .await
        })
        .await?;
    let whole = |namespaces: Vec<Namespace>, next_page_token| ListNamespacesResponse { namespaces, next_page_token };
    print(context, found, whole, namespace::list, || "no namespace has executions".to_owned(), &[])
}
