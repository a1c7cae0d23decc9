//! 9.6: `clusterctl upgrade` to a later release.

use serde_json::Value;

use crate::{
    scene::{Scene, name_of},
    world::{LATER, World, play},
};

/// B6, K4, T12: nothing of the former release is left, and no VM is touched.
#[test]
fn an_upgrade_replaces_the_provider_and_touches_no_vm() {
    play(async |world: &'static World| {
        let world = world.to_upgrade().await;
        let scene = Scene::with_pool(world, "upgraded", 2).await;
        scene.until("two Nodes", async || scene.has_pool_of(2)).await;
        let before = scene.vms().await;
        let roles = || -> Vec<(String, Value)> {
            let kinds = ["clusterroles", "clusterrolebindings", "validatingadmissionpolicies"];
            let all = kinds.iter().flat_map(|kind| world.reader.all("", kind, ""));
            let ours = all.filter(|object| name_of(object).contains("mcm"));
            ours.map(|object| (name_of(&object).to_owned(), object["metadata"]["uid"].clone())).collect()
        };
        let roles_before = roles();
        let planned = world.must(&["upgrade", "plan"]);
        assert!(
            planned.lines().any(|line| line.starts_with("infrastructure-mcm") && line.contains(LATER)),
            "{planned}"
        );

        // As a Deployment does when it is scaled to zero.
        world.stop_provider().await;
        world.must(&["upgrade", "apply", "--infrastructure", &format!("mcm:{LATER}")]);
        let provider = world.installed();
        assert_eq!(provider["version"], LATER);
        let roles_after = roles();
        let names = |roles: &[(String, Value)]| roles.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&roles_before), names(&roles_after));
        assert!(roles_before.iter().all(|one| !roles_after.contains(one)), "each is that of the later release");
        world.start_provider().await;

        assert_eq!(scene.vms().await, before);
        scene.kubectl(&["scale", "machinepool/upgraded-mp-0", "--replicas=3"]);
        scene.until("three Nodes", async || scene.has_pool_of(3)).await;
        let after = scene.vms().await;
        assert!(before.iter().all(|(name, ids)| after.get(name) == Some(ids)));
    });
}
