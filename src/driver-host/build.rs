//! Generates the messages and the service of remote drivers, without protoc.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=build.rs");
    #[cfg(feature = "remote")]
    generate()?;
    Ok(())
}

#[cfg(feature = "remote")]
fn generate() -> Result<(), Box<dyn std::error::Error>> {
    const FOLDER: &str = "../../proto";
    const PROTO: &str = "mcm/driver/v1/driver.proto";
    println!("cargo:rerun-if-changed={FOLDER}/{PROTO}");
    let files = protox::compile([PROTO], [FOLDER])?;
    tonic_prost_build::configure()
        // Both have a Debug by hand, which leaves out what is secret.
        .skip_debug(["mcm.driver.v1.MachineRequest", "mcm.driver.v1.ListRequest"])
        .compile_fds(files)?;
    Ok(())
}
