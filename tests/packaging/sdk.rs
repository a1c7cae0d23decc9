//! Code for drivers in other languages, compared with the interface that it was generated from.

use super::read;

/// `make test-drivers` compares the code itself, which needs Go.
#[test]
fn the_go_code_was_generated_from_the_interface() {
    let interface = read("proto/mcm/driver/v1/driver.proto");
    let sum = ring::digest::digest(&ring::digest::SHA256, interface.as_bytes());
    let hex: String = sum.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    let recorded = read("sdk/go/driverv1/driver.proto.sha256");
    assert_eq!(recorded, format!("{hex}  driver.proto\n"), "run make proto-go");
}
