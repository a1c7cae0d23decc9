//! `mcm vms`: the VMs of a namespace with their Machines and Nodes, as the clouds list them.

use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use futures::future::join_all;
use jiff::Timestamp;
use kube::{Api, Client, api::ListParams};
use schemars::JsonSchema;
use serde::Serialize;

use super::{
    document::JsonDocument,
    exit::{CommandAnswer, CommandExit},
    flags::DriverOptions,
    format::{OutputFormat, OutputOptions},
    reading::{
        ReadingOptions,
        cloud::{open_drivers, vms_of_class},
    },
};
use crate::api::{machine::MachineClass, node::Node};
use mcm_controllers::orphans::TargetNode;
use mcm_insight::{
    cluster_api::{self, CapiObjects, object::Kind},
    error::error_line,
    place::CallTarget,
    reader,
    story::CLASS,
    table::table_for,
    terminal::{TerminalLook, ago},
    vms::{ClassListing, NamespaceVm, VmOverview},
};
use mcm_rules::plan::counted;
use mcm_runtime::{owners::VmOwners, secrets::SecretCache};

/// Options of the command.
#[derive(Args, Debug)]
pub struct VmsOptions {
    #[command(flatten)]
    reading: ReadingOptions,
    #[command(flatten)]
    output: OutputOptions,
    #[command(flatten)]
    drivers: DriverOptions,
}

/// The answer as JSON.
#[derive(Serialize, JsonSchema)]
#[schemars(title = "VmList")]
struct VmDocument<'a> {
    /// By the name of the Machine.
    vms: &'a [NamespaceVm],
    /// VMs in the lists with the marker of another owner.
    foreign: usize,
    /// Classes whose VMs could not be listed, and other facts that are unknown.
    notes: &'a [String],
}

/// Lists the VMs of the classes of a namespace.
///
/// # Errors
/// The control cluster cannot be read, or a driver cannot be opened.
pub async fn run(options: VmsOptions) -> Result<CommandAnswer> {
    let reach = options.reading.reach().await?;
    reach.check().await?;
    let (drivers, namespace, now) = (open_drivers(&options.drivers)?, reach.namespace.as_str(), Timestamp::now());
    // Machines are read after the VMs: a VM is created for a Machine that exists.
    let before = reader::objects(&reach.control, namespace, now).await?;
    let unreadable = before.unreadable.iter().filter(|one| one.kind == CLASS);
    let unreadable = unreadable.map(|one| ClassListing { class: one.name.clone(), vms: Err(one.to_string()) });
    let unreadable: Vec<ClassListing> = unreadable.collect();
    let secrets = SecretCache::new(mcm_controllers::secret::CACHE.empty(), &reach.control);
    let (drivers, secrets) = (&drivers, &secrets);
    let list = |(class, object): (String, MachineClass)| async move {
        let vms = vms_of_class(drivers, &Arc::new(object), secrets).await;
        ClassListing { class, vms: vms.map_err(|error| error_line(&error)) }
    };
    let lists = join_all(before.classes.into_iter().map(list)).await;
    let lists = lists.into_iter().chain(unreadable).collect();
    let facts = reader::objects(&reach.control, namespace, now).await?;
    let owner = VmOwners::new(&reach.control).namespace_owner(namespace).await?;
    let (nodes, of_nodes) = match &reach.target {
        Some((client, _)) => nodes(client).await.map_or_else(
            |error| (Vec::new(), Some(format!("Nodes of VMs without a machine are unknown: {}", error_line(&error)))),
            |nodes| (nodes, None),
        ),
        None => (Vec::new(), None),
    };
    let machines: Vec<_> = facts.machines.into_values().map(Arc::new).collect();
    // Where the provider for Cluster API created no Machine, its kinds may not be installed.
    let mcm_machines = match machines.iter().any(|machine| machine.is_of_cluster_api()) {
        true => cluster_api::read_kinds(&reach.control, namespace, &[Kind::MCMMachine]).await,
        false => CapiObjects::default(),
    };
    let sets = facts.sets.into_values().collect();
    let inventory = VmOverview::from_lists(lists, &machines, sets, nodes, &owner, &mcm_machines);
    let unknown = |(class, reason): &(String, String)| format!("the VMs of class {class} are unknown: {reason}");
    let notes = inventory.unknown.iter().map(unknown).chain(of_nodes).chain(mcm_machines.notes);
    let notes: Vec<String> = notes.collect();
    let text = match options.output.format {
        OutputFormat::Text => text(options.output.look(), &reach.place, namespace, &inventory, &notes, now),
        OutputFormat::Json => {
            let VmOverview { vms, foreign, .. } = &inventory;
            JsonDocument::new("VmList", now, VmDocument { vms, foreign: *foreign, notes: &notes }).pretty()?
        }
    };
    let exit = if inventory.unknown.is_empty() { CommandExit::Good } else { CommandExit::No };
    Ok(CommandAnswer { text, exit })
}

async fn nodes(client: &Client) -> Result<Vec<TargetNode>> {
    let nodes = reader::pages(&Api::<Node>::all(client.clone()), ListParams::default()).await?;
    let of_target = |node| TargetNode { target: "target".to_owned(), is_default: true, node: Arc::new(node) };
    Ok(nodes.into_iter().map(of_target).collect())
}

fn text(
    look: TerminalLook,
    place: &CallTarget,
    namespace: &str,
    inventory: &VmOverview,
    notes: &[String],
    now: Timestamp,
) -> String {
    let mut text = place.head(namespace);
    if inventory.vms.is_empty() {
        text += match inventory.unknown.is_empty() {
            true => "no class of the namespace has VMs\n",
            false => "no VM is known\n",
        };
    } else {
        let has_clusters = inventory.vms.iter().any(|one| !one.cluster.is_empty());
        let row = |one: &NamespaceVm| {
            let state = one.standing.words().map_or_else(|| one.phase.clone(), str::to_owned);
            let age = one.since.map(|since| ago(now, since)).unwrap_or_default();
            let owner = one.owner.clone().unwrap_or_else(|| "none".to_owned());
            let cluster = has_clusters.then(|| one.cluster_path());
            let names = [one.machine.clone()].into_iter().chain(cluster);
            names.chain([one.vm.clone(), one.node.clone(), state, owner, age]).collect::<Vec<String>>()
        };
        let names = ["machine"].into_iter().chain(has_clusters.then_some("cluster/machine"));
        let header: Vec<&str> = names.chain(["vm", "node", "state", "owner", "age"]).collect();
        text += &table_for(look.is_terminal && look.unicode, &header, inventory.vms.iter().map(row));
    }
    if inventory.foreign > 0 {
        let of_others = counted(inventory.foreign, "VM");
        text += &format!("note: {of_others} in the lists with the marker of another owner\n");
    }
    notes.iter().for_each(|note| text += &format!("note: {note}\n"));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{
        document::tests::{fits, published},
        picture::{self, TEXT},
    };
    use mcm_insight::{
        testing::{NOW, at},
        vms::VmStanding,
    };
    use serde_json::json;

    fn vm(machine: &str, standing: VmStanding) -> NamespaceVm {
        NamespaceVm {
            vm: format!("simulated:///{machine}"),
            class: "small".to_owned(),
            machine: machine.to_owned(),
            cluster: String::new(),
            capi_machine: String::new(),
            node: machine.to_owned(),
            standing,
            phase: if standing == VmStanding::Owned { "Running".to_owned() } else { String::new() },
            owner: Some("demo".to_owned()),
            since: (standing == VmStanding::Owned).then(|| at(0)),
        }
    }

    fn in_cluster(vm: NamespaceVm, capi_machine: &str) -> NamespaceVm {
        NamespaceVm { cluster: "blue".to_owned(), capi_machine: capi_machine.to_owned(), ..vm }
    }

    #[test]
    fn the_schema_is_published_and_a_list_fits_it() {
        published::<JsonDocument<VmDocument<'_>>>("vms");
        let vms = [in_cluster(vm("a", VmStanding::Owned), "worker-a"), vm("b", VmStanding::Orphan)];
        let document = VmDocument { vms: &vms, foreign: 0, notes: &[] };
        let document = serde_json::to_value(JsonDocument::new("VmList", at(0), document)).unwrap();
        fits::<JsonDocument<VmDocument<'_>>>(&document);
        let names = |number: usize| ["cluster", "capiMachine"].map(|field| &document["vms"][number][field]);
        assert_eq!((names(0), names(1)), ([&json!("blue"), &json!("worker-a")], [&json!(""), &json!("")]));
    }

    #[test]
    fn clusters_have_a_column_if_a_vm_is_in_one() {
        let place = CallTarget { cluster: "seed".to_owned(), ..CallTarget::default() };
        let lines = |vms: Vec<NamespaceVm>| {
            let inventory = VmOverview { vms, foreign: 0, unknown: Vec::new() };
            let shown = text(TerminalLook::PLAIN, &place, "demo", &inventory, &[], at(NOW));
            let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
            shown.lines().skip(1).map(words).collect::<Vec<String>>()
        };
        let [a, b, c] = ["a", "b", "c"].map(|name| vm(name, VmStanding::Owned));
        let outside = "c simulated:///c c Running demo 10m";
        assert_eq!(lines(vec![c.clone()]), ["MACHINE VM NODE STATE OWNER AGE", outside]);
        let expected = [
            "MACHINE CLUSTER/MACHINE VM NODE STATE OWNER AGE",
            "a blue/worker-a simulated:///a a Running demo 10m",
            "b blue simulated:///b b Running demo 10m",
            outside,
        ];
        assert_eq!(lines(vec![in_cluster(a, "worker-a"), in_cluster(b, ""), c]), expected);
    }

    #[test]
    fn the_picture_of_the_docs_is_up_to_date() {
        let place = CallTarget { cluster: "seed-one".to_owned(), ..CallTarget::default() };
        let names = ["pool-84dff-d98b2", "pool-84dff-gmjqk", "pool-84dff-jpgkd", "pool-6d689-wggnm"];
        let standings = [VmStanding::Owned, VmStanding::Owned, VmStanding::Missing, VmStanding::Orphan];
        let vms = names.into_iter().zip(standings).map(|(name, standing)| vm(name, standing)).collect();
        let inventory = VmOverview { vms, foreign: 2, unknown: Vec::new() };
        let look = TerminalLook { colours: false, ..mcm_insight::testing::TERMINAL };
        let shown = text(look, &place, "demo", &inventory, &[], at(NOW));
        picture::tests::published("vms", shown.lines().map(|line| (line, TEXT)));
    }

    #[test]
    fn orphans_are_marked_and_unknown_lists_are_named() {
        let place = CallTarget { cluster: "blue".to_owned(), ..CallTarget::default() };
        let inventory = VmOverview {
            vms: vec![vm("a", VmStanding::Owned), vm("b", VmStanding::Orphan)],
            foreign: 2,
            unknown: vec![("large".to_owned(), "no answer".to_owned())],
        };
        let notes = ["the VMs of class large are unknown: no answer".to_owned()];
        let shown = text(TerminalLook::PLAIN, &place, "demo", &inventory, &notes, at(NOW));
        insta::assert_snapshot!(shown);
    }
}
