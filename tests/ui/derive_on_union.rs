use streamfleet::Task;

#[derive(Task)]
#[task(name = "bits")]
union Bits {
    whole: u32,
    halves: [u16; 2],
}

fn main() {}
