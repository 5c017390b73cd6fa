use belay_plan::*;
fn main() {
    let mut t = String::new();
    use std::io::Read;
    std::io::stdin().read_to_string(&mut t).unwrap();
    for doc in t.split("=====\n") {
        println!("-----\n{}", &doc[..doc.len().min(300)]);
        match Plan::parse(Format::Auto, doc) {
            Ok(p) => println!("OK {}", serde_json::to_string(&p.to_draft()).unwrap()),
            Err(e) => for v in e.violations { println!("  ! {v}") },
        }
    }
}
