from laaciq.cli import main

main()
