//! MachineClasses as Gardener's extension writes them.

use mcm_api::machine::MachineClass;
use mcm_driver::{
    interface::Driver,
    spec::ClassProblems,
    testing::{self as kit, with_id},
};
use serde::Deserialize;

use super::World;

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

/// The fake takes any image, type and network.
#[tokio::test]
async fn machines_of_classes_of_gardener_live_from_create_to_delete() {
    let world = World::new().await;
    for class in classes() {
        let request = kit::request("a", "uid-a", class, world.secret(), "");
        let vm = world.driver.create(&request).await.unwrap();
        let listed = world.driver.list(&request.class, &request.secret).await.unwrap();
        assert_eq!(listed.keys().collect::<Vec<_>>(), [&vm.provider_id]);
        world.driver.delete(&with_id(request, &vm.provider_id)).await.unwrap();
        assert_eq!(world.count(), 0);
    }
}
