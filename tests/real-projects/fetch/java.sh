# Maven Central: sources, test sources and what they are compiled against, as pom.xml names them.
case $1 in
download)
    mvn -q -B -f "$PIN/pom.xml" org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies -DexcludeTransitive=true \
        -DoutputDirectory="$ARCHIVES"
    ;;
prepare)
    mkdir -p project/main project/test lib
    for archive in "$ARCHIVES"/*.jar; do
        case $archive in
        *-test-sources.jar) (cd project/test && jar --extract --file "$archive") ;;
        *-sources.jar) (cd project/main && jar --extract --file "$archive") ;;
        *) cp "$archive" lib/ ;;
        esac
    done
    ;;
esac
