//! AWS: moto and MiniStack, behind a proxy that adds what they lack.

#[cfg(test)]
mod calls;
#[allow(dead_code, reason = "tests with Cluster API have several zones")]
mod ec2;
#[allow(dead_code, reason = "the demo needs no faults")]
mod proxy;
mod server;
#[cfg(test)]
mod tests;

pub use self::ec2::Ec2;
