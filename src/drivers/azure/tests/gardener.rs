//! MachineClasses as Gardener's extension writes them.

use mcm_api::machine::MachineClass;
use mcm_driver::{
    interface::Driver,
    spec::ClassProblems,
    testing::{self as kit, with_id},
};
use serde::Deserialize;

use super::{
    World,
    fake::{GROUP, LOCATION, SIZE, SUBNET, URN, VNET},
};
use serde_json::json;

/// The classes of the fixture, with what the fake needs in place of names that only Gardener's cloud has.
fn classes() -> Vec<MachineClass> {
    let all = serde_yaml_ng::Deserializer::from_str(include_str!("gardener.yaml"));
    all.map(|one| MachineClass::deserialize(one).unwrap()).collect()
}

#[tokio::test]
async fn classes_of_gardener_have_no_problems() {
    let world = World::new().await;
    for class in classes() {
        assert_eq!(world.driver.validate(&class), ClassProblems::default(), "{:?}", class.metadata.name);
        assert_eq!(world.driver.secret_problems(&class, &world.secret()), ClassProblems::default());
    }
}

/// A chart of Gardener writes the field so, and Gardener's driver ignores it: the VM is not in the reservation.
#[tokio::test]
async fn a_reservation_in_another_spelling_is_a_warning() {
    let world = World::new().await;
    let mut class = classes().swap_remove(0);
    let reservation = &mut class.provider_spec["properties"]["capacityReservation"];
    *reservation = json!({"capacityReservationGroup": reservation["capacityReservationGroupID"]});
    let problems = world.driver.validate(&class);
    let warnings: Vec<_> = problems.warnings.iter().map(ToString::to_string).collect();
    assert!(problems.errors.is_empty() && warnings.len() == 1, "{problems:?}");
    assert!(warnings[0].ends_with("unknown field, ignored: did you mean capacityReservationGroupID?"), "{warnings:?}");
}

/// The places are those of the fake.
#[tokio::test]
async fn machines_of_classes_of_gardener_live_from_create_to_delete() {
    let world = World::new().await;
    for mut class in classes() {
        let spec = &mut class.provider_spec;
        (spec["location"], spec["resourceGroup"]) = (json!(LOCATION), json!(GROUP));
        spec["subnetInfo"] = json!({"vnetName": VNET, "subnetName": SUBNET});
        spec["properties"]["hardwareProfile"]["vmSize"] = json!(SIZE);
        if spec["properties"]["storageProfile"]["imageReference"]["urn"].is_string() {
            spec["properties"]["storageProfile"]["imageReference"]["urn"] = json!(URN);
        }
        let request = kit::request("a", "uid-a", class, world.secret(), "");
        let vm = world.driver.create(&request).await.unwrap();
        let listed = world.driver.list(&request.class, &request.secret).await.unwrap();
        assert_eq!(listed.keys().collect::<Vec<_>>(), [&vm.provider_id]);
        world.driver.delete(&with_id(request, &vm.provider_id)).await.unwrap();
        assert_eq!(world.counts(), (0, 0, 0));
    }
    world.assert_valid_requests();
}
