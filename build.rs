//! Generates the messages and the service of remote drivers. Needs no protoc.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    #[cfg(feature = "remote")]
    remote_drivers()?;
    println!("cargo:rerun-if-changed=build.rs");
    Ok(())
}

#[cfg(feature = "remote")]
fn remote_drivers() -> Result<(), Box<dyn std::error::Error>> {
    const PROTO: &str = "mcm/driver/v1/driver.proto";
    println!("cargo:rerun-if-changed=proto/{PROTO}");
    let files = protox::compile([PROTO], ["proto"])?;
    tonic_prost_build::configure()
        // Both have a Debug of their own, which leaves out what is secret.
        .skip_debug(["mcm.driver.v1.MachineRequest", "mcm.driver.v1.ListRequest"])
        .compile_fds(files)?;
    Ok(())
}
